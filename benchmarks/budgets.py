"""What sharing a night's time gains: the intervals of the profile `breadth` in the same seconds,
with equally many starts of each case and with starts that follow the spread of an earlier night.

Two nights under `results/`, of different machines: budgets from the starts of one, and intervals
expected from the starts of the other, in both directions. Each pair has three starts per night, so
a spread is rough; this blurs both plans equally.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

from one_duel import store_results

from benchcore.planning.budgets import EarlierDuels, PairSpread, share_seconds
from benchcore.planning.profiles import load_profile
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.duels import judge_campaign
from benchcore.store.frames.duels import duel_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.incoming.proofs import ingest_proofs
from data_checks.check import check_campaign

_STORED = Path(__file__).parent.parent / "results"
_NIGHTS = {
    "cpu-amd-epyc-2026-11-25": "nightly-breadth-2026-11-25",
    "cpu-intel-xeon-2026-11-26": "nightly-breadth-2026-11-26",
}
_STARTS = (4, 6, 10)
_WIDTHS = (0.02, 0.05)
_Night = dict[tuple[str, str], EarlierDuels]


def main() -> None:
    """Print and store a row per number of starts and direction."""
    one, other = (_read_night(machine, name) for machine, name in _NIGHTS.items())
    rows = []
    for num_starts in _STARTS:
        for past, now in ((one, other), (other, one)):
            rows.append({"starts": num_starts, **_compare(past, now, num_starts)})
    for row in rows:
        print(row)
    store_results("budgets", rows)


def _read_night(machine: str, campaign: str) -> _Night:
    """Per case of a stored night, its seconds per start and its pairs' spread over starts."""
    with tempfile.TemporaryDirectory() as folder:
        state = open_state(Path(folder) / "state")
        shutil.copytree(_STORED / machine, state.root, dirs_exist_ok=True)
        engine = open_database(state.database_url)
        ingest_spool(engine, state)
        ingest_proofs(engine, state)
        check_campaign(engine, campaign)
        judge_campaign(engine, campaign)
        ratios = ratio_frame(engine, campaign)
        duels = duel_frame(engine, campaign).set_index("duel_run")
        engine.dispose()
    night: _Night = {}
    for run, rows in ratios[ratios["counts"]].groupby("duel_run"):
        logs = [each for each in rows["start_log_ratios"] if len(each) > 1]
        if not logs:
            continue
        taken = duels.loc[run, "ended_at"] - duels.loc[run, "started_at"]
        pairs = tuple(PairSpread(starts=statistics.stdev(each), compilations=0.0) for each in logs)
        key = (rows["workload"].iloc[0], rows["case_name"].iloc[0])
        start_s = taken.total_seconds() / max(map(len, logs))
        night[key] = EarlierDuels(start_s=start_s, pairs=pairs)
    return night


def _compare(past: _Night, now: _Night, num_starts: int) -> dict[str, object]:
    cases = sorted(past.keys() & now.keys())
    limits = dataclasses.replace(load_profile("breadth").limits, max_starts=40)
    of_cases = [
        (dataclasses.replace(limits, budget_s=(num_starts + 0.5) * past[case].start_s), past[case])
        for case in cases
    ]
    shared = [
        int(budget_s / duel.start_s)
        for budget_s, (_, duel) in zip(share_seconds(of_cases), of_cases, strict=True)
    ]
    found: dict[str, object] = {"cases": len(cases)}
    for name, counts in (("equal", [num_starts] * len(cases)), ("shared", shared)):
        given = list(zip(cases, counts, strict=True))
        halves = [now[case].expect_half_width(limits, count) for case, count in given]
        minutes = sum(count * past[case].start_s for case, count in given) / 60
        found[name] = {**_summarise(halves), "minutes": round(minutes, 1)}
    return found


def _summarise(halves: list[float]) -> Mapping[str, float]:
    ranked = sorted(halves)
    within = {f"within {width:.0%}": sum(each <= width for each in halves) for width in _WIDTHS}
    widest = ranked[math.ceil(0.9 * len(ranked)) - 1]
    return {"median": round(statistics.median(ranked), 4), "90 %": round(widest, 4), **within}


if __name__ == "__main__":
    main()

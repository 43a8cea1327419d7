"""Where each second of a night goes: from `make nightly` to the dashboard, by stage.

    .venv/bin/python benchmarks/pipeline.py night --cold --warm --again
    .venv/bin/python benchmarks/pipeline.py stages state/campaigns/nightly-laptop-2026-11-20

`night` runs the main job in a fresh clone, with a cold or a warm package cache; with `--again` also
a second night there, which has environments, proofs and passes in place. `stages` reads a campaign
that was measured. Both show the seconds by stage, by stage and contender, and those until the
interval of each pair is narrow. `--chart night.svg` also draws them as stacked bars.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import altair as alt
from one_duel import describe_machine, store_results

from benchcore.cell.measure.degraded import find_degraded
from benchcore.cell.stopping import half_width_of_mean
from benchcore.verdict.duel.ratios import ContenderTimes, judge_duel

ROOT = Path(__file__).parent.parent
TIMED, LATENCIES = "timed blocks", "latency samples"
_NAMES = {
    "campaign": "planning",
    "environment": "environments",
    "round": "rest of turns: freezing, thawing",
    "evidence": "evidence after the blocks",
    "passes": "passes: memory, profile, energy",
    "proof": "proofs against float64",
    "duel": "between duels",
}
"""What happens after an event of this kind, until the next event; of a `stage`, the stage."""
_AGAIN = "another"
"""The campaign of the second night."""
_WIDTH = 40
_NARROW = (0.01, 0.02)
_MOST_STARTS = 1000


def main() -> None:
    """Print where the time went, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    night = commands.add_parser("night")
    night.add_argument("--cold", action="store_true", help="with an empty package cache")
    night.add_argument("--warm", action="store_true", help="with this user's package cache")
    night.add_argument("--again", action="store_true", help="a second night after each")
    stages = commands.add_parser("stages")
    stages.add_argument("campaign", type=Path, help="the campaign's folder in the state folder")
    stages.add_argument("--chart", type=Path, help="write stacked bars here: .svg, .png or .html")
    options = parser.parse_args()
    if options.command == "stages":
        found = read_campaign(options.campaign)
        print_stages(found)
        if options.chart is not None:
            draw_stages(found).save(options.chart)
        return
    caches = [cache for cache in ("cold", "warm") if getattr(options, cache)]
    store_results("pipeline", [run_nights(cache, options.again) for cache in caches])


def run_nights(cache: str, again: bool) -> dict[str, Any]:
    """The seconds of a night in a fresh clone; those of a second one there under `again`."""
    folder = Path(tempfile.mkdtemp(prefix="deadheat-"))
    try:
        clone = folder / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        environ = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
        if cache == "cold":
            environ["UV_CACHE_DIR"] = str(folder / "cache")
        first = _run_night(["make", "nightly"], clone, environ, "nightly-*")
        row: dict[str, Any] = {"cache": cache, **first}
        if again:
            command = [".venv/bin/deadheat", "nightly", "--campaign", _AGAIN]
            row["again"] = _run_night(command, clone, environ, _AGAIN)
        return row
    finally:
        shutil.rmtree(folder)


def _run_night(
    command: Sequence[str], clone: Path, environ: dict[str, str], name: str
) -> dict[str, Any]:
    began = time.monotonic()
    subprocess.run(command, cwd=clone, env=environ, check=True)
    wall_s = time.monotonic() - began
    assert (clone / "state" / "site" / "index.html").exists()
    (campaign,) = clone.glob(f"state/campaigns/{name}")
    row = {"wall_s": round(wall_s, 1), **read_campaign(campaign)}
    print_stages(row)
    return row


def read_campaign(folder: Path) -> dict[str, Any]:
    """Seconds by stage of one campaign, measured in one place, one duel after the other."""
    log = (folder / "progress.jsonl").read_text(encoding="utf-8").splitlines()
    spool = folder.parent.parent / "spool" / folder.name
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in spool.glob("*.json")]
    seconds = account([json.loads(line) for line in log], documents)
    wall_s = sum(seconds.values())
    return {
        "campaign": folder.name,
        "duels": len(documents),
        "logged_s": round(wall_s, 1),
        "share_in_timed_blocks": round(seconds[TIMED] / wall_s, 3),
        "seconds": {name: round(each, 1) for name, each in seconds.items()},
        "contenders": account_contenders(documents),
        "pairs": [row for each in documents for row in expect_narrow(each)],
        **describe_machine(documents[0]),
    }


def account(
    events: Sequence[dict[str, Any]], documents: Iterable[dict[str, Any]]
) -> dict[str, float]:
    """Seconds by stage, the largest first: each belongs to the event before it. What the documents
    timed is taken out of the turns. The sum is the time from the first event to the last."""
    seconds = defaultdict[str, float](float)
    for event, following in pairwise(events):
        kind = event["event"]
        name = event["stage"] if kind == "stage" else _NAMES.get(kind, kind)
        seconds[name] += following["time"] - event["time"]
    blocks_ns = latencies_ns = 0
    for document in documents:
        for contender in document["contenders"]:
            for start in contender["starts"]:
                blocks_ns += sum(block["elapsed_ns"] for block in start["blocks"])
                latencies_ns += sum(start["latency_ns"] or ())
    for name, timed_ns in ((TIMED, blocks_ns), (LATENCIES, latencies_ns)):
        seconds[name] = timed_ns / 1e9
        seconds[_NAMES["round"]] -= timed_ns / 1e9
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def account_contenders(documents: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Seconds by contender and stage, over all duels."""
    seconds = defaultdict[str, dict[str, float]](lambda: defaultdict(float))
    for contender in (each for document in documents for each in document["contenders"]):
        own = seconds[contender["name"]]
        for start in contender["starts"]:
            for stage, taken in start["stages"].items():
                own[stage] += taken or 0.0
            own[TIMED] += sum(block["elapsed_ns"] for block in start["blocks"]) / 1e9
            own[LATENCIES] += sum(start["latency_ns"] or ()) / 1e9
    return {
        name: {stage: round(each, 1) for stage, each in own.items()}
        for name, own in sorted(seconds.items())
    }


def expect_narrow(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Per pair of a duel with two starts or more: how many starts, and how many seconds of them,
    half of its 95 % interval is expected to need for each width. From the spread and the length of
    the starts that were made; None = more than a thousand starts."""
    began = [
        datetime.fromisoformat(start["started_at"]) for start in document["contenders"][0]["starts"]
    ]
    if len(began) < 2:
        return []
    start_s = (began[-1] - began[0]).total_seconds() / (len(began) - 1)
    rows = []
    for ratio in judge_duel([_read_side(each) for each in document["contenders"]]):
        if len(ratio.start_log_ratios) < 2:
            continue
        spread = statistics.stdev(ratio.start_log_ratios)
        needed = {f"{width:.0%}": _count_starts(spread, width) for width in _NARROW}
        rows.append(
            {
                "duel": f"{document['duel']['workload']} {document['duel']['case']}",
                "pair": f"{ratio.a} {ratio.b}",
                "spread": round(spread, 4),
                "start_s": round(start_s, 1),
                "starts": needed,
                "seconds": {key: n and round(n * start_s) for key, n in needed.items()},
            }
        )
    return rows


def _count_starts(spread: float, width: float) -> int | None:
    enough = (n for n in range(2, _MOST_STARTS + 1) if half_width_of_mean(spread, n) <= width)
    return next(enough, None)


def _read_side(contender: dict[str, Any]) -> ContenderTimes:
    starts = contender["starts"]
    return ContenderTimes(
        **{key: contender[key] for key in ("name", "arm", "framework", "version", "role")},
        starts={
            start["index"]: {b["round"]: b["elapsed_ns"] / b["steps"] for b in start["blocks"]}
            for start in starts
        },
        degraded={start["index"]: find_degraded(start["blocks"]) for start in starts},
        compilations={start["index"]: start.get("compilation", 0) for start in starts},
    )


def print_stages(found: dict[str, Any]) -> None:
    """A bar per stage, and a line per contender and per pair."""
    longest = max(found["seconds"].values())
    for name, each in found["seconds"].items():
        bar = "#" * round(max(0.0, each) / longest * _WIDTH)
        print(f"{name:45} {each:7.1f} s {each / found['logged_s']:6.1%}  {bar}")
    share = found["share_in_timed_blocks"]
    print(f"{found['campaign']}: {found['logged_s']} s, {share:.1%} in timed blocks")
    for name, seconds in found["contenders"].items():
        print(f"{name}:", ", ".join(f"{stage} {each}" for stage, each in seconds.items() if each))
    for pair in found["pairs"]:
        until = ", ".join(
            f"±{width} after {'no number of starts tried' if each is None else f'{each} s'}"
            for width, each in pair["seconds"].items()
        )
        print(f"{pair['duel']}, {pair['pair']}: starts spread {pair['spread']:.1%}; {until}")


def draw_stages(found: dict[str, Any]) -> alt.Chart:
    """A bar for the whole night and one for each contender, stacked by stage, largest first."""
    bars = {found["campaign"]: found["seconds"], **found["contenders"]}
    rows = [
        {"bar": bar, "stage": stage, "seconds": max(0.0, each), "place": place}
        for bar, seconds in bars.items()
        for place, (stage, each) in enumerate(sorted(seconds.items(), key=lambda item: -item[1]))
    ]
    return (
        alt.Chart(alt.Data(values=rows), width=600)
        .mark_bar()
        .encode(
            x=alt.X("seconds:Q", title="seconds"),
            y=alt.Y("bar:N", title=None, sort=list(bars), axis=alt.Axis(labelLimit=300)),
            color=alt.Color("stage:N", title="stage", scale=alt.Scale(scheme="tableau20")),
            order="place:Q",
            tooltip=["bar:N", "stage:N", alt.Tooltip("seconds:Q", format=".1f")],
        )
    )


if __name__ == "__main__":
    main()

"""How often is a contender called different from itself, and which shift is found in which time?

    .venv/bin/python benchmarks/false_alarms.py --duels 200 --state state

Short duels of bare Python's `noop` against itself through the real conductor, 3 starts each;
run again, it goes on where it was. Printed: the share called `different`, and of intervals (95 %,
99 %) that miss zero, each with its exact binomial 95 % interval. Then, by simulation on the noise
of these starts: the smallest shift that is called different in 95 of 100 duels, against the
seconds spent. Both tables are also written as JSON beside this file.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from one_duel import describe_machine, keep
from scipy import stats

from benchcore import campaign
from benchcore.interpreters import find_interpreters
from benchcore.matrix import make_plan, save_plan
from benchcore.profiles import Match, Profile
from benchcore.releases import parse_request, resolve
from benchcore.state import State, open_state
from benchcore.store.documents import read_document
from benchcore.tracks import STDLIB
from benchcore.verdict.ratios import Ratio, Side, judge_duel

SHIFTS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5)


def main() -> None:
    """Measure what is missing, print both tables, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duels", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no duel after these")
    parser.add_argument("--campaign", default="false-alarms")
    parser.add_argument("--state", type=Path, default=Path("state"))
    options = parser.parse_args()
    state = open_state(options.state)
    deadline = time.monotonic() + options.seconds
    releases = {"stdlib": resolve(parse_request("stdlib"), find_interpreters())}
    documents = []
    for number in range(options.duels):
        if time.monotonic() < deadline:
            documents.append(_measure(number, releases, options.campaign, state))
    ratios = [_judge(_sides(each)) for each in documents]
    alarms = _count_alarms(ratios)
    power = _find_shifts([log for each in ratios for log in each.start_log_ratios], documents)
    _print(alarms, power)
    keep("false-alarms", {**describe_machine(documents[0]), "alarms": alarms, "power": power})


def _measure(number: int, releases: Any, name: str, state: State) -> dict[str, Any]:
    match = Match(workload="noop", case="bare", arms=(STDLIB, STDLIB), expected_s=2)
    profile = Profile(
        name="false-alarms",
        matches=(match,),
        seed=number,
        starts=3,
        rounds=4,
        block_ms=1.0,
        warm_up_limit_s=0.05,
    )
    plan = make_plan(profile, releases, campaign=f"{name}-{number}", site="local")
    save_plan(plan, campaign.campaign_folder(state, plan.campaign) / "plan.json")
    return read_document(campaign.measure_duel(plan, plan.duels[0], state))


def _sides(document: dict[str, Any]) -> list[Side]:
    """Both sides as the verdict takes them; it asks for a framework, which noop has not."""
    return [
        Side(
            name=contender["name"],
            arm="stdlib",
            framework="jax",
            version="1",
            role="newest",
            starts={
                start["index"]: {b["round"]: b["elapsed_ns"] / b["steps"] for b in start["blocks"]}
                for start in contender["starts"]
            },
        )
        for contender in document["contenders"]
    ]


def _judge(sides: list[Side]) -> Ratio:
    (ratio,) = judge_duel(sides)
    return ratio


def _count_alarms(ratios: list[Ratio]) -> list[dict[str, Any]]:
    def misses(ratio: Ratio, confidence: float) -> bool:
        samples = np.array(ratio.start_log_ratios)
        half = stats.t.ppf((1 + confidence) / 2, len(samples) - 1) * stats.sem(samples)
        return bool(abs(samples.mean()) > half)

    counts = {
        "called different": [ratio.verdict == "different" for ratio in ratios],
        "95 % interval misses 0": [misses(ratio, 0.95) for ratio in ratios],
        "99 % interval misses 0": [misses(ratio, 0.99) for ratio in ratios],
    }
    rows = []
    for what, hits in counts.items():
        interval = stats.binomtest(sum(hits), len(hits)).proportion_ci(0.95)
        share = sum(hits) / len(hits)
        row = {"what": what, "duels": len(hits), "share": share}
        rows.append({**row, "low": float(interval.low), "high": float(interval.high)})
    return rows


def _find_shifts(noise: list[float], documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Starts drawn from the measured ones, made symmetric round zero, and shifted."""
    pool = np.array([*noise, *(-each for each in noise)])
    rng = np.random.default_rng(1)
    second = np.median([_seconds_a_start(document) for document in documents])
    rows = []
    for starts in (3, 5, 10, 20):
        drawn = rng.choice(pool, (2000, starts))
        found = [shift for shift in SHIFTS if _power(drawn + np.log1p(shift)) >= 0.95]
        smallest = min(found, default=None)
        rows.append({"starts": starts, "seconds": float(second * starts), "shift": smallest})
    return rows


def _power(samples: np.ndarray) -> float:
    """Share of duels called different: as the verdict, on many at once."""
    num = samples.shape[1]
    error = samples.std(axis=1, ddof=1) / np.sqrt(num)
    mean = np.abs(samples.mean(axis=1))
    same = mean + stats.t.ppf(0.95, num - 1) * error <= np.log1p(0.02)
    return float(np.mean((mean > stats.t.ppf(0.975, num - 1) * error) & ~same))


def _seconds_a_start(document: dict[str, Any]) -> float:
    allocation = document["allocation"]
    began, ended = (np.datetime64(allocation[f"{end}ed_at"][:23]) for end in ("start", "end"))
    return float((ended - began) / np.timedelta64(1, "s")) / len(
        document["contenders"][0]["starts"]
    )


def _print(alarms: list[dict[str, Any]], power: list[dict[str, Any]]) -> None:
    for row in alarms:
        print(
            f"{row['what']}: {row['share']:.1%} ({row['low']:.1%} to {row['high']:.1%}) "
            f"of {row['duels']} duels"
        )
    for row in power:
        shift = "none tried" if row["shift"] is None else f"{row['shift']:.0%}"
        print(f"{row['starts']} starts, {row['seconds']:.1f} s: smallest shift found {shift}")


if __name__ == "__main__":
    main()

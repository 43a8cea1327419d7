"""A/A duels: the same contender twice. How far from zero is a ratio that must be zero?

    .venv/bin/python benchmarks/aa.py --starts 20 --state state

Each start is one pair of fresh processes. Printed per framework, frozen and not frozen: the median
|log ratio| over pairs, its standard deviation between pairs, and the mean standard deviation over
rounds within a pair. The table is also written as JSON beside this file.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path
from typing import Any

from one_duel import describe_machine, measure, store_results

from benchcore.planning.profiles import Match, Profile
from benchcore.planning.requests import parse_arm
from benchcore.protocol import DuelLimits
from benchcore.state import State, open_state
from benchcore.verdict.starts import log_ratios_by_start

Starts = dict[int, dict[int, float]]


def main() -> None:
    """Measure every arm both ways, print the table and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--workload", default="mlp")
    parser.add_argument("--case", default="train_b128")
    parser.add_argument("--contender", action="append", help="default: jax and torch,compile=none")
    parser.add_argument("--state", type=Path, default=Path("state"))
    parser.add_argument("--python", help="interpreter version, such as 3.11")
    options = parser.parse_args()
    state = open_state(options.state)
    rows = [
        _measure(options, text, freeze, state)
        for text in options.contender or ["jax", "torch,compile=none"]
        for freeze in (True, False)
    ]
    _print(rows)
    store_results(f"aa-{options.workload}-{options.case}", rows)


def _measure(options: argparse.Namespace, text: str, freeze: bool, state: State) -> dict[str, Any]:
    arm = parse_arm(text)
    match = Match(
        workload=options.workload, case=options.case, arms=(arm, arm), expected_s=options.starts * 8
    )
    profile = Profile(
        name=f"aa-{arm.name}-{'frozen' if freeze else 'running'}",
        matches=(match,),
        limits=DuelLimits(
            starts=options.starts, rounds=options.rounds, warm_up_limit_s=1.0, freeze=freeze
        ),
    )
    document = measure(profile, state, python=options.python)
    return {
        "contender": document["contenders"][0]["name"],
        "frozen": freeze,
        **describe_machine(document),
        **_spread(*(_times(contender) for contender in document["contenders"])),
    }


def _times(contender: dict[str, Any]) -> Starts:
    return {
        start["index"]: {b["round"]: b["elapsed_ns"] / b["steps"] for b in start["blocks"]}
        for start in contender["starts"]
    }


def _spread(a: Starts, b: Starts) -> dict[str, float | int]:
    pairs = log_ratios_by_start(a, b).values()
    within = [
        statistics.stdev(math.log(b[start][number] / a[start][number]) for number in rounds)
        for start, rounds in a.items()
    ]
    return {
        "pairs": len(pairs),
        "median_abs_log_ratio": statistics.median(abs(pair) for pair in pairs),
        "sd_between_pairs": statistics.stdev(pairs),
        "sd_within_pair": statistics.mean(within),
    }


def _print(rows: list[dict[str, Any]]) -> None:
    columns = ("contender", "frozen", "pairs", "median_abs_log_ratio", "sd_between_pairs")
    print(*columns, "sd_within_pair", sep="  ")
    for row in rows:
        shown = [row[key] for key in (*columns, "sd_within_pair")]
        print(*(f"{x:.4f}" if isinstance(x, float) else x for x in shown), sep="  ")


if __name__ == "__main__":
    main()

"""How long a warm-up takes, and whether a step is still slower after it: today's rule and others.

    .venv/bin/python benchmarks/warm_up.py --state state --case "mlp train_b128"

Starts run without a warm-up of their own, so that their first blocks are one. Each rule is applied
to the same blocks. `left` compares the eight blocks after the rule's end with the last fifteen of
the start: 1 % means that the clock would have begun while a step was still 1 % slower.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from one_duel import describe_machine, measure, store_results

from benchcore.cell.measure.timing import is_steady
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.requests import parse_arm
from benchcore.protocol import DuelLimits
from benchcore.state import open_state

Rule = Callable[[Sequence[float]], bool]
BLOCKS, NEXT, LAST, LIMIT = 45, 8, 15, 20
ARMS = ("jax", "torch,compile=default", "torch,compile=none")


def _five_agree(means: Sequence[float]) -> bool:
    last = means[-5:]
    return len(last) == 5 and max(last) <= min(last) * 1.02


RULES: dict[str, Rule] = {
    "five blocks agree within 2 %": _five_agree,
    "fastest of three, twice": lambda means: is_steady(means, [0] * len(means)),
    "always the limit": lambda means: False,
    "none": lambda means: True,
}


def main() -> None:
    """Measure, apply the rules, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="mlp train_b128")
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--state", type=Path, default=Path("state"))
    parser.add_argument("--python")
    options = parser.parse_args()
    workload, case = options.case.split()
    arms = tuple(parse_arm(text) for text in ARMS)
    profile = Profile(
        name="warmup",
        matches=(Match(workload=workload, case=case, arms=arms, expected_s=60),),
        limits=DuelLimits(
            starts=options.starts, rounds=BLOCKS, warm_up_limit_s=0.0, passes=False, budget_s=900
        ),
    )
    document = measure(profile, open_state(options.state), python=options.python)
    rows = [
        _apply(name, rule, contender)
        for contender in document["contenders"]
        for name, rule in RULES.items()
    ]
    for row in rows:
        print(*(f"{key} {value}" for key, value in row.items()), sep="  ")
    found = {**describe_machine(document), "case": options.case, "rows": rows}
    store_results(f"warm_up_{workload}_{case}", found)


def _apply(name: str, rule: Rule, contender: dict[str, Any]) -> dict[str, Any]:
    ends: list[int] = []
    left: list[float] = []
    for start in contender["starts"]:
        means = [block["elapsed_ns"] / block["steps"] for block in start["blocks"]]
        limit = min(LIMIT, len(means) - LAST - NEXT)
        end = next((i for i in range(1, limit) if rule(means[:i])), limit)
        ends.append(end)
        after = statistics.median(means[end : end + NEXT])
        left.append(after / statistics.median(means[-LAST:]) - 1)
    return {
        "contender": contender["name"],
        "rule": name,
        "blocks": statistics.median(ends),
        "at_limit": sum(end == LIMIT for end in ends),
        "left_percent": round(100 * statistics.median(left), 2),
        "worst_percent": round(100 * max(left, key=abs), 2),
        "starts": len(ends),
    }


if __name__ == "__main__":
    main()

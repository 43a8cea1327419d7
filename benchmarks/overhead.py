"""What the harness itself costs: the time of a block in which nothing is done.

    .venv/bin/python benchmarks/overhead.py --state state

Each block of the `noop` workload holds one empty step, so what its clock shows is the harness: the
clock itself, the loop, and waiting for a device without work.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from one_duel import describe_machine, measure, store_results

from benchcore.planning.profiles import Match, Profile
from benchcore.planning.requests import parse_arm
from benchcore.protocol import DuelLimits
from benchcore.state import open_state

_ONE_STEP_MS = 1e-6


def main() -> None:
    """Measure, print and keep the block times of every side that does nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--state", type=Path, default=Path("state"))
    options = parser.parse_args()
    state = open_state(options.state)
    arms = tuple(parse_arm(text) for text in ("stdlib", "jax", "torch,compile=none"))
    profile = Profile(
        name="overhead",
        matches=(Match(workload="noop", case="bare", arms=arms, expected_s=60),),
        limits=DuelLimits(rounds=options.rounds, block_ms=_ONE_STEP_MS),
    )
    document = measure(profile, state)
    rows = [_describe(contender) for contender in document["contenders"]]
    for row in rows:
        print(*(f"{key} {value}" for key, value in row.items()), sep="  ")
    store_results("overhead", {**describe_machine(document), "rows": rows})


def _describe(contender: dict[str, Any]) -> dict[str, Any]:
    blocks = [block for start in contender["starts"] for block in start["blocks"]]
    assert all(block["steps"] == 1 for block in blocks)
    micros = sorted(block["elapsed_ns"] / 1000 for block in blocks)
    return {
        "contender": contender["name"],
        "blocks": len(micros),
        "median_us": round(statistics.median(micros), 2),
        "p95_us": round(micros[int(0.95 * len(micros))], 2),
    }


if __name__ == "__main__":
    main()

"""What a call costs on the host: a compiled function, a module, and an eager model.

    .venv/bin/python benchmarks/dispatch.py --state state

A stack of 16 layers of 8 by 8, batch 1: the arithmetic is nothing, so the time of a call is that
of Python, of the framework's dispatch, and of 16 tiny operations. Row 43 of the pitfalls.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from one_duel import store_results

from benchcore.cell.measure.host import describe_host
from benchcore.environments.build import provision
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import parse_request, resolve
from benchcore.state import open_state

WORKER = Path(__file__).with_name("dispatch_worker.py")


def main() -> None:
    """Measure, print and keep the time of a call, each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--state", type=Path, default=Path("state"))
    options = parser.parse_args()
    state = open_state(options.state)
    rows = []
    for framework in ("jax", "torch"):
        release = resolve(parse_request(framework), find_interpreters())
        record = provision(release, state, accelerator="cpu", report=print)
        rows += describe(record.name, _time(record.python, framework, options.turns))
    for row in rows:
        print(*(f"{key} {value}" for key, value in row.items()), sep="  ")
    store_results("dispatch", {**_describe_machine(), "rows": rows})


def _time(python: str, framework: str, turns: int) -> dict[str, list[float]]:
    """Way -> nanoseconds a call, of each turn."""
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [python, "-P", "-s", str(WORKER), framework, str(turns)],
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"wanted the time of {framework}'s calls, got: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def describe(name: str, found: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Microseconds a call: median and quartiles of the turns, and the times of the quickest way.

    From nanoseconds a call, by way.
    """
    quickest = min(statistics.median(each) for each in found.values())
    rows = []
    for way, each in found.items():
        low, middle, high = statistics.quantiles(each, n=4)
        rows.append(
            {
                "contender": name,
                "way": way,
                "median_us": round(middle / 1000, 2),
                "quartiles_us": [round(low / 1000, 2), round(high / 1000, 2)],
                "of_quickest": round(middle / quickest, 2),
            }
        )
    return rows


def _describe_machine() -> dict[str, Any]:
    """Includes the load of the last five minutes: ours is 1, and the rest is of other processes."""
    host = describe_host()
    return {
        "device": host["cpu_model"],
        "cpus": host["cpus"],
        "load": round(os.getloadavg()[1], 1),
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
    }


if __name__ == "__main__":
    main()

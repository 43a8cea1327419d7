"""What our loader and records cost a step, with the data set on the device; goal below 2 %.

    .venv/bin/python benchmarks/loader.py --state state

Epochs of `deadheat train` (mode device-resident) take turns with a bare loop over the same batches
and the same compiled step, in one process. The machine should be quiet.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from one_duel import store_results
from scipy import stats

from benchcore.cell.loader.server import LoaderServer
from benchcore.cell.measure.host import describe_host
from benchcore.environments.build import provision
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import parse_request, resolve
from benchcore.planning.datasets.dataset import store_arrays
from benchcore.protocol import DatasetOrder, encode
from benchcore.state import open_state

WORKER = Path(__file__).with_name("loader_worker.py")
_BATCH, _STEPS, _SIDE = 32, 25, 28
GOAL = 0.02


def main() -> None:
    """Measure, print and keep what a step costs beyond a bare loop; exit code 1 above the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--state", type=Path, default=Path("state"))
    options = parser.parse_args()
    state = open_state(options.state)
    rows = []
    for framework in ("jax", "torch"):
        release = resolve(parse_request(framework), find_interpreters())
        record = provision(release, state, accelerator="cpu", report=print)
        with tempfile.TemporaryDirectory() as folder:
            found = _time(record.python, framework, options.turns, Path(folder))
        rows.append({"contender": record.name, **describe(found["ours"], found["bare"])})
        print(*(f"{key} {value}" for key, value in rows[-1].items()), sep="  ")
    host = describe_host()
    machine = {
        "device": host["cpu_model"],
        "cpus": host["cpus"],
        "load": round(os.getloadavg()[0], 1),
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    store_results("loader", {**machine, "rows": rows})
    sys.exit(any(row["high_percent"] > 100 * GOAL for row in rows))


def describe(ours: Sequence[float], bare: Sequence[float]) -> dict[str, Any]:
    """What ours costs beyond the bare loop, in percent of it, with its 95 % interval (Student's t
    over paired turns). From nanoseconds a step."""
    logs = [math.log(a / b) for a, b in zip(ours, bare, strict=True)]
    middle, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    reach = float(stats.t.ppf(0.975, len(logs) - 1)) * error
    bounds = {"cost": middle, "low": middle - reach, "high": middle + reach}
    return {
        "bare_us": round(statistics.median(bare) / 1000, 1),
        **{f"{name}_percent": round(100 * math.expm1(each), 2) for name, each in bounds.items()},
        "turns": len(logs),
    }


def order_dataset(folder: Path) -> DatasetOrder:
    """Seeded images of the size of MNIST's: what is measured does not depend on their content."""
    rng = np.random.Generator(np.random.PCG64(0))

    def make(count: int) -> dict[str, np.ndarray]:
        return {
            "images": rng.integers(0, 256, (count, _SIDE, _SIDE), dtype=np.uint8),
            "labels": rng.integers(0, 10, count, dtype=np.int32),
        }

    splits = {"train": make(_BATCH * _STEPS), "val": make(_BATCH)}
    kept = store_arrays("seeded images", splits, folder, 10)
    return DatasetOrder(
        name=kept.name,
        listing=str(kept.listing),
        sha256=kept.sha256,
        num_classes=kept.num_classes,
        num_train=kept.num_train,
        num_val=kept.num_val,
        batch=_BATCH,
        side=_SIDE,
        rows=kept.list_rows(_SIDE),
        mode="device-resident",
        loader_python=sys.executable,
        workers=1,
        batch_timeout_s=60.0,
    )


def _serve(order: DatasetOrder, folder: Path) -> None:
    LoaderServer(order, folder).serve()


def _time(python: str, framework: str, turns: int, folder: Path) -> dict[str, list[float]]:
    """Nanoseconds a step of each turn, ours and bare."""
    order = order_dataset(folder)
    (folder / "dataset.json").write_text(json.dumps(encode(dataclasses.replace(order))))
    server = multiprocessing.Process(target=_serve, args=(order, folder), daemon=True)
    server.start()
    try:
        environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
        environ["PYTHONPATH"] = str(Path(__file__).parents[1])
        command = [python, "-s", str(WORKER), framework, str(turns), str(folder)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    finally:
        server.kill()
        server.join()
    if done.returncode:
        raise SystemExit(f"wanted the time of {framework}'s steps, got: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()

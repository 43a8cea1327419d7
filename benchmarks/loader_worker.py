"""Times epochs of our trainer and a bare loop in turns; runs in a framework's Python, prints JSON.

    python loader_worker.py FRAMEWORK TURNS FOLDER

FOLDER has the loader's socket and ring buffer, and `dataset.json`. Nanoseconds a step.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchcore.cell.loader.client import LoaderClient
from benchcore.cell.loader.epochs import Trainer
from benchcore.cell.measure.host import usable_cpus
from benchcore.cell.runtimes.runtime import load_runtime
from benchcore.workloads.mnist_cnn.spec import CASES, SPEC

_SEED = 0
_START_S = 60.0


def main() -> None:
    """Warm both up with an epoch, then let them take turns, each as often first."""
    framework, turns, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    _await(folder / "socket")
    dataset = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    runtime = load_runtime(framework)
    runtime.import_framework()
    case = CASES["train_b32"]
    settings = {"device": "cpu", "compile": "jit" if framework == "jax" else "default"}
    runtime.initialise(
        device="cpu", precision=case.precision, threads=usable_cpus(), settings=settings
    )
    module = importlib.import_module(f"benchcore.workloads.mnist_cnn.in_{framework}")
    program = module.build(case, SPEC.make_arrays(case, _SEED), settings)
    training = program.training()
    trainer = Trainer(
        training=training,
        loader=LoaderClient(dataset, folder, _SEED),
        mode="device-resident",
        runtime=runtime,
        read_mj=None,
        report_alive=lambda: None,
    )
    trainer.warm_up()

    def ours(epoch: int) -> float:
        found = trainer.run(epoch)
        return found["elapsed_ns"] / found["steps"]

    def bare(epoch: int) -> float:
        given = trainer.loader.batches("train", epoch, layout=training.layout)
        placed = [training.send(training.stage(arrays)) for arrays in given]
        trainer.loader.take_digest()
        runtime.synchronise((training.pending(), placed))
        began = time.perf_counter_ns()
        loss: object = None
        for batch in placed:
            loss = training.learn(batch)
        runtime.synchronise((training.pending(), loss))
        return (time.perf_counter_ns() - began) / len(placed)

    ways: dict[str, Callable[[int], float]] = {"ours": ours, "bare": bare}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name in sorted(ways, reverse=bool(turn % 2)):
            took = ways[name](turn)
            if turn:
                found[name].append(took)
    print(json.dumps(found))


def _await(path: Path) -> None:
    until = time.monotonic() + _START_S
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)


if __name__ == "__main__":
    main()

"""Builds duel orders for tests, with contenders in a bare interpreter by default."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchcore.planning.datasets.dataset import Dataset
from benchcore.planning.snapshot import list_inside_files
from benchcore.protocol import (
    METHOD,
    SCHEMA,
    ContenderOrder,
    DatasetOrder,
    DuelLimits,
    DuelOrder,
    EnvironmentRecord,
    gather_limits,
)
from benchcore.running.duel_process import run_duel
from benchcore.state import State
from benchcore.store.incoming.documents import read_document

ROOT = Path(__file__).parent.parent


def make_contender(name: str, **changes: Any) -> ContenderOrder:
    """A stdlib contender run by this Python."""
    record = EnvironmentRecord(
        name="bare",
        key="0" * 16,
        lock_sha256=None,
        python=changes.pop("python", sys.executable),
        python_version="3",
        build="system",
        packages={},
    )
    defaults: dict[str, Any] = {
        "name": name,
        "arm": "stdlib",
        "role": "newest",
        "framework": "stdlib",
        "version": "3.11",
        "settings": {"compile": "none"},
        "environment": record,
        "environment_failure": None,
    }
    return ContenderOrder(**{**defaults, **changes})


def make_order(*contenders: ContenderOrder, **changes: Any) -> DuelOrder:
    """A short duel of the `noop` workload."""
    defaults: dict[str, Any] = {
        "schema": SCHEMA,
        "method": METHOD,
        "duel_run": "0123456789abcdef",
        "campaign": "test",
        "duel_hash": "fedcba9876543210",
        "workload": "noop",
        "case": "bare",
        "track": "default",
        "device": "cpu",
        "seed": 7,
        "starts": 2,
        "rounds": 4,
        "max_starts": None,
        "compilations": 1,
        "max_rounds": None,
        "target": 0.01,
        "budget_s": 60.0,
        "block_ms": 1.0,
        "warm_up_limit_s": 0.2,
        "prepare_timeout_s": 20.0,
        "block_timeout_s": 5.0,
        "freeze": True,
        "passes": True,
        "probe": False,
        "harness_version": "0",
        "snapshot": "0" * 64,
        "site": "local",
        "dataset": None,
        "contenders": contenders,
    }
    order = gather_limits({**defaults, **changes})
    return DuelOrder(**{**order, "limits": DuelLimits(**order["limits"]).fill_in()})


def make_faulty_order(fault: str, *modes: str, **changes: Any) -> DuelOrder:
    """A duel of contenders that are `healthy`, or (`none`) do what the case is called after."""
    contenders = [
        make_contender(f"c{number}", settings={"compile": mode})
        for number, mode in enumerate(modes)
    ]
    limits = {"prepare_timeout_s": 4.0 if fault.startswith("hang") else 20.0, "passes": False}
    return make_order(*contenders, workload="faulty", case=fault, **{**limits, **changes})


def run_order(order: DuelOrder, state: State, snapshot: Path) -> dict[str, Any]:
    """The document of a duel that ran from this snapshot."""
    return read_document(run_duel(order, state, snapshot, lambda event: None))


@contextmanager
def on_one_cpu() -> Iterator[None]:
    """Frameworks that are started meanwhile use one thread: in tiny cases two take longer, as they
    wait for each other at every operation. Each worker of the tests has its own CPU."""
    usable = sorted(os.sched_getaffinity(0))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    os.sched_setaffinity(0, {usable[int(worker) % len(usable)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


def copy_inside_ring(folder: Path) -> None:
    """A copy of the measured layer that a test may break or add to; a snapshot is read-only."""
    for file in list_inside_files():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, folder / file)


def add_workload(snapshot: Path, name: str, spec: str, stdlib: str) -> None:
    """Add a workload to a snapshot: its folder is all that it takes."""
    folder = snapshot / "benchcore" / "workloads" / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "spec.py").write_text(spec)
    (folder / "in_stdlib.py").write_text(stdlib)


def ignore_host_load(snapshot: Path) -> None:
    """Let no block be degraded by the load of the machine that the tests run on."""
    (host,) = snapshot.glob("benchcore/cell/measure/host.py")
    text = re.sub(r"(?m)^_SHORTEST_S = .*", '_SHORTEST_S = float("inf")', host.read_text())
    host.write_text(text)


def add_gpus(snapshot: Path, count: int, **readings: object) -> None:
    """Let processes that run from a snapshot see so many GPUs; NVML is a fake.

    `readings` replace what it says of a GPU, as Python expressions by the names below.
    """
    readings_of_gpu = {
        "sm_clock": "1980",
        "throttle": "0",
        "processes": "[]",
        "energy": "_refuse()",
        **readings,
    }
    (snapshot / "pynvml.py").write_text(_NVML.format(count=count, **readings_of_gpu))


_NVML = """
from types import SimpleNamespace

NVML_ERROR_NO_PERMISSION, NVML_ERROR_NOT_SUPPORTED = 4, 3

class NVMLError(Exception):
    value = 3

class NVMLError_LibraryNotFound(NVMLError): pass
class NVMLError_NotSupported(NVMLError): pass

NVML_DEVICE_MIG_ENABLE = 1
NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlSystemGetDriverVersion(): return "580.1"
def nvmlDeviceGetCount(): return {count}
def nvmlDeviceGetPciInfo(handle): return SimpleNamespace(busId=f"00000000:{{handle:02X}}:00.0")
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceIsMigDeviceHandle(handle): return SimpleNamespace(value=0)
def nvmlDeviceGetMigMode(handle): raise NVMLError_NotSupported
def nvmlDeviceGetName(handle): return "Fake GPU"
def nvmlDeviceGetUUID(handle): return f"GPU-{{handle}}"
def nvmlDeviceGetMemoryInfo(handle): return SimpleNamespace(total=2**36)
def nvmlDeviceGetClockInfo(handle, which): return {sm_clock}
def nvmlDeviceGetCurrentClocksThrottleReasons(handle): return {throttle}
def nvmlDeviceGetTemperature(handle, which): return 40
def nvmlDeviceGetPowerUsage(handle): return 100_000
def nvmlDeviceGetApplicationsClock(handle, which): raise NVMLError_NotSupported
def nvmlDeviceGetPowerManagementLimit(handle): raise NVMLError_NotSupported
def nvmlDeviceGetComputeRunningProcesses(handle): return {processes}
def nvmlDeviceGetTotalEnergyConsumption(handle): return {energy}
def _refuse(): raise NVMLError_NotSupported
"""


LEARNER_SPEC = """
from dataclasses import dataclass
from benchcore.program import Arrays
from benchcore.workloads.contract import Spec, TrainedImages

@dataclass(frozen=True, kw_only=True)
class Case:
    use_case: str = "train"
    batch: int = 2
    precision: str = "fp32_ieee"
    side: int = 32

CASES = {"train": Case()}
def make_arrays(case, seed): return Arrays(params={}, inputs={})
def make_training_arrays(make_arrays, case, seed, batch):
    return Arrays(params={}, inputs=batch)
def flops(case): return 0
def least_bytes(case): return 0
def tolerances(case): return {"loss": 1e-6}

SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    make_training_arrays=make_training_arrays,
    trains_on=lambda case: TrainedImages(side=None, classes=1000),
    flops=flops,
    least_bytes=least_bytes,
    tolerances=tolerances,
)
"""
LEARNER = """
import os, signal, time
import numpy as np
from benchcore.program import Program, Training

def build(case, arrays, settings):
    mode = settings["compile"]
    steps = 0
    def learn(batch):
        nonlocal steps
        steps += 1
        if mode == "killed" and steps > 3:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)
        return batch[0][:1].mean() if mode == "half" else batch[0].mean()
    def read_batch(batch):
        images = batch[0] // 2 if mode == "dark" else batch[0]
        means = images.mean(axis=(0, 2, 3) if mode == "nchw" else (0, 1, 2))
        return {"pixels": means, "labels": batch[1] + 1}
    training = Training(
        layout="NCHW" if mode == "nchw" else "NHWC",
        stage=lambda batch: (
            batch["images"] * (1.0 if mode == "early" else np.uint8(1)), batch["labels"].copy()
        ),
        send=lambda staged: staged,
        learn=learn,
        validate=lambda batch: (batch[1] >= 0).sum(),
        read_batch=read_batch,
        pending=lambda: None,
        reset=lambda: None,
    )
    return Program(
        place=lambda inputs: inputs,
        step=lambda inputs: np.asarray(inputs["images"].mean()),
        read=lambda loss: {"loss": loss},
        training=lambda: training,
    )
"""
"""A workload that learns nothing: its loss is the images' mean, and every image is right. Set to
`dark`, it takes the images of its batches for half as bright; set to `early`, it makes floats of
them before the clock runs."""


def make_dataset(listing: Dataset, **changes: Any) -> DatasetOrder:
    """What a `learner` trains on: two images a batch."""
    defaults: dict[str, Any] = {
        "name": listing.name,
        "listing": str(listing.listing),
        "sha256": listing.sha256,
        "num_classes": listing.num_classes,
        "num_train": listing.num_train,
        "num_val": listing.num_val,
        "batch": 2,
        "side": 32,
        "rows": listing.list_rows(changes.get("side", 32)),
        "mode": "end-to-end",
        "loader_python": sys.executable,
        "workers": 2,
        "batch_timeout_s": 20.0,
    }
    return DatasetOrder(**{**defaults, **changes})

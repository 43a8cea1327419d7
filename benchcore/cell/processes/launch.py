"""Launches a contender: its process, its environment variables, and its first message."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchcore.cell.failures.status import ContenderFailedError
from benchcore.cell.failures.workarounds import NO_WORKAROUND, Workaround, xla_flags_of
from benchcore.cell.measure import host
from benchcore.cell.processes.process import ContenderProcess, start_contender
from benchcore.cell.result.start import STAGES
from benchcore.protocol import ContenderOrder, DuelOrder

# Variables that a contender inherits; everything else is in its order.
INHERITED = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
    "NVIDIA_VISIBLE_DEVICES",
)


class Launcher:
    """Launches the contenders of one duel."""

    def __init__(self, order: DuelOrder, scratch: Path) -> None:
        self._order = order
        self._scratch = scratch
        self.workarounds: dict[str, Workaround] = {}
        """By the name of the contender that needs it."""
        self.loader_folder: Path | None = None
        """The loader's folder, in a duel with a dataset."""
        self.compilation = 0
        """Whose caches the next processes use; see `DuelLimits.compilation_of`."""
        self.seed = order.seed
        """Seed of the next processes; see `DuelOrder.seed_of`."""

    def launch(
        self, contender: ContenderOrder, workaround: Workaround | None = None
    ) -> ContenderProcess:
        """A new process without any message yet, with this workaround or else the contender's own.

        Raises ContenderFailedError.
        """
        return launch(contender, self.environ(contender, workaround), self._scratch)

    def run_briefly(
        self, contender: ContenderOrder, workaround: Workaround, precision: str | None = None
    ) -> ContenderFailedError | None:
        """Prepare, collect evidence and run one block. Returns only the failure, None = it ran.

        `precision` replaces the case's, which makes it a different case.
        """
        path = str(self._scratch / f"{contender.name}.once.npz")
        limits = (self._order.limits.prepare_timeout_s, self._order.limits.block_timeout_s)
        try:
            process = self.launch(contender, workaround)
            try:
                self.prepare(process, contender, precision=precision)
                evidence = {"do": "evidence", "when": "before", "path": path}
                process.request(evidence, wanted="evidence", timeout_s=limits[0])
                process.request({"do": "block"}, wanted="block", timeout_s=limits[1])
            finally:
                process.close()
        except ContenderFailedError as failed:
            return failed
        return None

    def prepare(
        self,
        process: ContenderProcess,
        contender: ContenderOrder,
        *,
        purpose: str = "timing",
        precision: str | None = None,
        on_stage: Callable[[str], None] = lambda stage: None,
    ) -> dict[str, Any]:
        """Everything before the first block. Raises ContenderFailedError."""
        message = {
            "purpose": purpose,
            "framework": contender.framework,
            "workload": self._order.workload,
            "case": self._order.case,
            "seed": self.seed,
            "device": self._order.device,
            "settings": contender.settings,
            "threads": host.usable_cpus(),
            "block_ms": self._order.limits.block_ms,
            "warm_up_limit_s": self._order.limits.warm_up_limit_s,
            "precision": precision,
            "dataset": self._order.dataset and dataclasses.asdict(self._order.dataset),
            "loader_folder": self.loader_folder and str(self.loader_folder),
            "checkpoint": self._order.checkpoint and dataclasses.asdict(self._order.checkpoint),
        }
        return process.request(
            message,
            wanted="prepared",
            timeout_s=self._order.limits.prepare_timeout_s,
            on_stage=on_stage,
        )

    def launch_for_pass(
        self, contender: ContenderOrder
    ) -> tuple[ContenderProcess, dict[str, Any] | None]:
        """A contender that has run one step, for passes that don't time blocks; and how long it
        took to compile, as a document's `warm`. None = it compiled nothing."""
        process = self.launch(contender)
        try:
            prepared = self.prepare(process, contender, purpose="pass")
        except ContenderFailedError:
            process.close()
            raise
        stages = dict.fromkeys(STAGES) | prepared["stages"]
        warm = {"stages": stages, "cache_hits": prepared["cache_hits"]}
        return process, warm if prepared["num_compilations"] else None

    def empty_caches(self, contender: ContenderOrder) -> None:
        """Remove what this contender compiled for the current compilation, if anything."""
        shutil.rmtree(self._caches(contender, self._workaround(contender)), ignore_errors=True)

    def environ(
        self, contender: ContenderOrder, workaround: Workaround | None = None
    ) -> dict[str, str]:
        """The variables of `contender_environ`, by default with the contender's own workaround."""
        workaround = workaround or self._workaround(contender)
        caches = self._caches(contender, workaround)
        return contender_environ(contender, self._order.device, caches, workaround)

    def _workaround(self, contender: ContenderOrder) -> Workaround:
        return self.workarounds.get(contender.name, NO_WORKAROUND)

    def _caches(self, contender: ContenderOrder, workaround: Workaround) -> Path:
        """Separate for each compilation, so that others can't be found, and for each workaround."""
        own = self._scratch / "caches" / contender.name
        return own / f"workaround-{workaround.number}" / f"compilation-{self.compilation}"


def launch(
    contender: ContenderOrder, environ: Mapping[str, str], scratch: Path
) -> ContenderProcess:
    """A new process that logs to the scratch folder. Raises ContenderFailedError."""
    log = scratch / f"{contender.name}.log"
    try:
        return start_contender(contender.environment.python, environ, log)
    except OSError as error:
        reason = f"{contender.environment.python!r} does not start: {error}"
        raise ContenderFailedError("environment", "import", reason, cause="environment") from error


def inherited_environ() -> dict[str, str]:
    """The variables of our environment that a measuring process may see: no password, no database
    URL."""
    return {key: os.environ[key] for key in INHERITED if key in os.environ}


def conductor_environ(snapshot: Path) -> dict[str, str]:
    """The variables of a process that runs the snapshot's code. Only `bytecode` writes there."""
    return {
        **inherited_environ(),
        "PYTHONPATH": str(snapshot),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def contender_environ(
    contender: ContenderOrder,
    device: str,
    caches: Path,
    workaround: Workaround = NO_WORKAROUND,
) -> dict[str, str]:
    """The variables of a contender: passive waiting for every thread pool, our snapshot, and the
    folders of every compiler in `caches`."""
    return {
        **inherited_environ(),
        "PYTHONPATH": os.environ["PYTHONPATH"],
        # The build compiled the environment's bytecode, and the conductor the snapshot's.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_BLOCKTIME": "0",
        "OMP_NUM_THREADS": str(host.usable_cpus()),
        "JAX_PLATFORMS": "cpu" if device == "cpu" else "cuda",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as NVML and Slurm count
        "XLA_FLAGS": " ".join((*xla_flags_of(contender.settings, device), *workaround.flags)),
        "JAX_COMPILATION_CACHE_DIR": str(caches / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        # Contenders share the device: none may preallocate all of it.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }

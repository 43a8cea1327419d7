"""How a contender is started: its process, the variables around it, and its first message."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchcore.cell import host
from benchcore.cell.arm_environ import xla_flags_of
from benchcore.cell.ladder import CLEAN, Rung
from benchcore.cell.process import ContenderFailedError, ContenderProcess, start_contender
from benchcore.protocol import ContenderOrder, DuelOrder

# What a contender inherits; everything else about it is in its order.
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
    """Starts the contenders of one duel. `cures` holds, by name, the rung that one stands on."""

    def __init__(self, order: DuelOrder, scratch: Path) -> None:
        self._order = order
        self._scratch = scratch
        self.cures: dict[str, Rung] = {}
        self.feed_from: Path | None = None
        """The producer's folder, in a duel that has a dataset."""

    def launch(self, contender: ContenderOrder, rung: Rung | None = None) -> ContenderProcess:
        """A fresh process, told nothing yet; on a rung if one is given, else with its cure.

        Raises ContenderFailedError.
        """
        return launch(contender, self.environ(contender, rung), self._scratch)

    def live_once(
        self, contender: ContenderOrder, rung: Rung, precision: str | None = None
    ) -> ContenderFailedError | None:
        """A whole life in short, of which nothing is kept but what ended it; None = it went well.

        `precision` stands in for the case's, which makes it a different case.
        """
        path = str(self._scratch / f"{contender.name}.once.npz")
        limits = (self._order.prepare_timeout_s, self._order.block_timeout_s)
        try:
            process = self.launch(contender, rung)
            try:
                self.prepare(process, contender, precision=precision)
                evidence = {"do": "evidence", "path": path}
                process.ask(evidence, wanted="evidence", timeout_s=limits[0])
                process.ask({"do": "block"}, wanted="block", timeout_s=limits[1])
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
            "seed": self._order.seed,
            "device": self._order.device,
            "settings": contender.settings,
            "threads": host.usable_cpus(),
            "block_ms": self._order.block_ms,
            "warm_up_limit_s": self._order.warm_up_limit_s,
            "precision": precision,
            "dataset": self._order.dataset and dataclasses.asdict(self._order.dataset),
            "feed_from": self.feed_from and str(self.feed_from),
            "checkpoint": self._order.checkpoint and dataclasses.asdict(self._order.checkpoint),
        }
        return process.ask(
            message,
            wanted="prepared",
            timeout_s=self._order.prepare_timeout_s,
            on_stage=on_stage,
        )

    def launch_for_pass(self, contender: ContenderOrder) -> ContenderProcess:
        """A contender that has run one step, and will be timed no more."""
        process = self.launch(contender)
        try:
            self.prepare(process, contender, purpose="pass")
        except ContenderFailedError:
            process.close()
            raise
        return process

    def environ(self, contender: ContenderOrder, rung: Rung | None = None) -> dict[str, str]:
        """The variables of `contender_environ`, with its cure where no rung is given."""
        rung = rung or self.cures.get(contender.name, CLEAN)
        return contender_environ(contender, self._order.device, self._scratch, rung)


def launch(
    contender: ContenderOrder, environ: Mapping[str, str], scratch: Path
) -> ContenderProcess:
    """A fresh process that logs to the scratch folder. Raises ContenderFailedError."""
    log = scratch / f"{contender.name}.log"
    try:
        return start_contender(contender.environment.python, environ, log)
    except OSError as error:
        reason = f"{contender.environment.python!r} does not start: {error}"
        raise ContenderFailedError("environment", "import", reason, cause="environment") from error


def contender_environ(
    contender: ContenderOrder, device: str, scratch: Path, rung: Rung = CLEAN
) -> dict[str, str]:
    """Passive waiting for every thread pool, caches of this run alone, our snapshot."""
    caches = scratch / "caches" / contender.name / f"rung-{rung.number}"
    return {
        **{key: os.environ[key] for key in INHERITED if key in os.environ},
        "PYTHONPATH": os.environ["PYTHONPATH"],
        # The environment's bytecode was compiled when it was built; the snapshot gets none.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_BLOCKTIME": "0",
        "OMP_NUM_THREADS": str(host.usable_cpus()),
        "JAX_PLATFORMS": "cpu" if device == "cpu" else "cuda",
        "XLA_FLAGS": " ".join((*xla_flags_of(contender.settings, device), *rung.flags)),
        "JAX_COMPILATION_CACHE_DIR": str(caches / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        # Contenders share the device: none may take it all.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }

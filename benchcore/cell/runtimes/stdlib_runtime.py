"""No framework at all: measures the harness itself, in a bare interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.proof.canary import Operands, Products
from benchcore.cell.proof.following.drawing import Followed, Read
from benchcore.cell.proof.steps.given import Readings
from benchcore.cell.runtimes.runtime import ALONE, Place
from benchcore.program import UnsupportedError


class StdlibRuntime:
    """Nothing to import; outputs may be the standard library's futures."""

    def import_framework(self) -> None:
        """There is none."""

    def count_processes(self, devices: int, settings: Mapping[str, Any]) -> int:
        """It has no devices to share."""
        return 1

    def initialise(
        self,
        *,
        device: str,
        precision: str,
        threads: int,
        settings: Mapping[str, Any],
        devices: int = 1,
        place: Place = ALONE,
    ) -> None:
        """Only the CPU is supported, as one device."""
        if devices > self.count_processes(devices, settings):
            raise UnsupportedError(f"wanted {devices} devices, but stdlib has one")
        if device != "cpu":
            raise UnsupportedError(f"wanted device {device!r}, but stdlib runs on 'cpu' only")

    def try_compiler(self) -> None:
        """Nothing compiles."""

    def canary(self, make_operands: Callable[[], Operands]) -> Products | None:
        """Nothing computes."""
        return None

    def synchronise(self, outputs: object) -> None:
        """Wait for every future among the outputs; other objects are ready already."""
        for output in outputs if isinstance(outputs, list) else [outputs]:
            if isinstance(output, Future):
                output.result()

    def release(self, outputs: object) -> None:
        """Futures may end in any order."""
        self.synchronise(outputs)

    def compile_seconds(self) -> dict[str, float | None]:
        """Nothing compiles."""
        return {"trace": None, "lower": None, "compile": None}

    def num_compilations(self) -> int:
        """Nothing compiles."""
        return 0

    def num_cache_hits(self) -> int | None:
        """There is no cache."""
        return None

    def planned_bytes(self, program: BoundProgram) -> int | None:
        """There is no plan."""
        return None

    def measure_sharing(self, program: BoundProgram) -> dict[str, float | None]:
        """There are no collectives and no arrays."""
        return {}

    def profile(self, program: BoundProgram, steps: int, folder: Path) -> dict[str, Any] | None:
        """There is no profiler of a framework."""
        return None

    def switches(self) -> dict[str, object]:
        """There is no framework."""
        return {}

    def watch_step(self, program: BoundProgram, *, to_end: bool = True) -> dict[str, str]:
        """Its steps may do anything."""
        return {}

    def list_work(self, step: Callable[[], object], *, timed: bool = False) -> list[str]:
        """Its steps may do anything."""
        return []

    def inspect_step(self, step: Callable[[], object]) -> Readings | None:
        """There are no arrays of a framework."""
        return None

    def list_floats(self, program: BoundProgram) -> dict[int, int]:
        """There are no arrays of a framework."""
        return {}

    def draw_given(self, step: Callable[[], object], first: object, read: Read) -> Followed:
        """No step of it is inspected."""
        return Followed(outputs=(), drawn=())

    def count_products(self, program: BoundProgram) -> dict[str, Any] | None:
        """Python computes no products."""
        return None

    def allocator_peak_bytes(self) -> int | None:
        """There is no allocator of a framework."""
        return None

    def effective(self) -> dict[str, Any]:
        """The interpreter's version."""
        return {"versions": {"python": sys.version.split()[0]}}

    def address(self, array: object) -> int:
        """Identity of a Python object."""
        return id(array)

    def manifest(self, held: Mapping[str, Any]) -> dict[str, str]:
        """Nothing can differ."""
        return {}


def make_runtime() -> StdlibRuntime:
    """The runtime of no framework."""
    return StdlibRuntime()

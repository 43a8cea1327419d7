"""No framework at all: measures the harness itself, in a bare interpreter."""

from __future__ import annotations

import sys
from typing import Any


class StdlibRuntime:
    """Nothing to import, nothing to wait for."""

    def import_framework(self) -> None:
        """There is none."""

    def initialise(self, *, device: str, precision: str, threads: int) -> None:
        """Only the CPU can be had."""
        if device != "cpu":
            raise ValueError(f"wanted device {device!r}, but stdlib runs on 'cpu'; plan it there")

    def synchronise(self, outputs: object) -> None:
        """Nothing runs behind our back."""

    def compile_seconds(self) -> dict[str, float | None]:
        """Nothing compiles."""
        return {"trace": None, "lower": None, "compile": None}

    def num_compilations(self) -> int:
        """Nothing compiles."""
        return 0

    def allocator_peak_bytes(self) -> int | None:
        """There is no allocator of a framework."""
        return None

    def effective(self) -> dict[str, Any]:
        """The interpreter's version."""
        return {"versions": {"python": sys.version.split()[0]}}


def make_runtime() -> StdlibRuntime:
    """The runtime of no framework."""
    return StdlibRuntime()

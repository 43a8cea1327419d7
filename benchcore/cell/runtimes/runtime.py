"""The interface of a framework to the one harness loop; `*_runtime.py` implement it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.proof.canary import Operands, Products
from benchcore.cell.proof.following.drawing import Followed, Read
from benchcore.cell.proof.steps.given import Readings

FROZEN_S = 10**6
"""How long the processes of a group may wait for a frozen one, which sends no heartbeat. Its end is
seen by its pipe, or within a collective."""


@dataclass(frozen=True)
class Place:
    """The position of a process in the group that uses several devices. It meets the others at the
    file `rendezvous`, or at `address`, a free port of loopback. The usual contender is alone."""

    rank: int = 0
    size: int = 1
    rendezvous: str = ""
    address: str = ""

    def count_threads(self, own: int, cpus: int) -> int:
        """Threads of the whole group, if each member has `own`. A member has at least one: of more
        members than CPUs only as many run at a time."""
        return min(self.size, cpus) if own == 1 else own * self.size


ALONE = Place()


def name_devices(first: str, number: int) -> str:
    """Words for this many devices, for messages."""
    return f"device {first!r}" if number == 1 else f"{number} devices from {first!r} on"


class Runtime(Protocol):
    """One framework, as the contender uses it."""

    def import_framework(self) -> None:
        """Import the framework (timed as the stage `import`)."""
        ...

    def count_processes(self, devices: int, settings: Mapping[str, Any]) -> int:
        """How many processes a contender with so many devices is."""
        ...

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
        """Initialise the device and set the precision switches (the stage `init`).

        Raises UnsupportedError if there is no such device, or it doesn't have the precision, and
        ValueError for an unknown precision.
        """
        ...

    def try_compiler(self) -> None:
        """Find out once what this machine's compiler can do, if a compilation would do so itself.
        Takes part in no stage."""
        ...

    def canary(self, make_operands: Callable[[], Operands]) -> Products | None:
        """Multiply and convolve by the framework's ordinary path, in the case's precision."""
        ...

    def synchronise(self, outputs: object) -> None:
        """Return when the device has finished everything in `outputs`."""
        ...

    def release(self, outputs: object) -> None:
        """Called before steps' results are dropped; returns when they are ready.

        May return at once if the device runs steps in order, because waiting for the last one is
        then enough.
        """
        ...

    def compile_seconds(self) -> dict[str, float | None]:
        """Seconds spent so far in `trace`, `lower` and `compile`; None = not separable.

        The three don't overlap.
        """
        ...

    def num_compilations(self) -> int:
        """Number of compilations by this process so far."""
        ...

    def num_cache_hits(self) -> int | None:
        """How many of them came from a cache on disk; None = no cache."""
        ...

    def planned_bytes(self, program: BoundProgram) -> int | None:
        """What the compiler planned a step to hold at once; None = unknown."""
        ...

    def measure_sharing(self, program: BoundProgram) -> dict[str, float | None]:
        """For a program on several devices: `communicated_bytes` that they exchange in a step, as
        `explain.communication` counts them, and `state_bytes_per_device` that the first of them
        holds from step to step: its parts of parameters, statistics and the optimiser's state.
        Neither includes gradients or activations."""
        ...

    def profile(self, program: BoundProgram, steps: int, folder: Path) -> dict[str, Any] | None:
        """Profile `steps` steps with the framework's profiler; None = it has none.

        Returns a document's `profile` without `steps` and `plain_ns`. Nothing may run
        in this process afterwards; `folder` is for the trace.
        """
        ...

    def switches(self) -> dict[str, object]:
        """The framework's global switches."""
        ...

    def watch_step(self, program: BoundProgram, *, to_end: bool = True) -> dict[str, str]:
        """Take steps to see what they do besides their work: readings of the manifest.

        `host_calls` are waits, clocks and copies from or to the host; `owed` names arrays of the
        state that the harness can't wait for; `switches_within` are global switches that a step
        changes.
        Watched `to_end`, a step may have been interrupted, so nothing may run without a reset.
        """
        ...

    def list_work(self, step: Callable[[], object], *, timed: bool = False) -> list[str]:
        """Take a step: what its own code calls, and the operators that the framework was asked for,
        as far as it can be seen without a change of the step. Between `timed` blocks nothing
        compiled runs eagerly: the allocator would be another one in the blocks that follow."""
        ...

    def inspect_step(self, step: Callable[[], object]) -> Readings | None:
        """What a step reads and draws; None = there is no framework. The program must be reset
        afterwards."""
        ...

    def list_floats(self, program: BoundProgram) -> Mapping[int, int]:
        """Identity and numbers of each array of floats that a step reads of what was there before
        it, where other processes follow its steps. The program must be reset afterwards."""
        ...

    def draw_given(self, step: Callable[[], object], first: object, read: Read) -> Followed:
        """Take steps whose random numbers are made of given bits, as `DrawGiven` says. The program
        must be reset afterwards."""
        ...

    def count_products(self, program: BoundProgram) -> dict[str, Any] | None:
        """Count the FLOPs and dtypes of a step's matrix products and convolutions.

        Returns what `benchcore.cell.explain.products.describe` does; None = there is no framework.
        The program must be reset afterwards.
        """
        ...

    def allocator_peak_bytes(self) -> int | None:
        """The peak of the framework's allocator; None = no counter."""
        ...

    def effective(self) -> dict[str, Any]:
        """Settings and versions in force, read back from the framework."""
        ...

    def address(self, array: object) -> int:
        """Address of an array of the framework on its device."""
        ...

    def manifest(self, held: Mapping[str, Any]) -> dict[str, str]:
        """The settings of the run, read back from `Program.held` and the framework."""
        ...


def load_runtime(framework: str) -> Runtime:
    """The runtime of a framework; only its own module is imported."""
    module = importlib.import_module(f"benchcore.cell.runtimes.{framework}_runtime")
    return module.make_runtime()

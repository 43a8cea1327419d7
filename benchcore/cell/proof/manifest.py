"""The parity manifest: the settings in force on this side after its run, as a flat table of text.

Each runtime reads back its own framework; what both sides share is read here. Outside, two
manifests are compared in `benchcore.verdict.duel.parity`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

from benchcore.cell.measure.timing import LARGEST_GROUP, run_steps
from benchcore.cell.nested import list_arrays
from benchcore.cell.proof.watching.host_calls import NONE
from benchcore.cell.proof.watching.reaching import describe_reach
from benchcore.workloads.settings import XLA_FLAGS

if TYPE_CHECKING:
    from benchcore.cell.bound_program import BoundProgram
    from benchcore.cell.runtimes.runtime import Runtime

_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "KMP_BLOCKTIME",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "XLA_FLAGS",
)

_STEPS = 3


def read_manifest(
    runtime: Runtime, program: BoundProgram, canary: Mapping[str, Any] | None, *, alone: bool = True
) -> dict[str, str]:
    """The framework's settings, the canary's result, and the relevant environment variables. Steps
    that other processes must follow (not `alone`) are not watched."""
    held = program.held()
    readings = {**runtime.manifest(held), "drop_rates": _join_rates(held.get("drop_rates", ()))}
    readings |= program.describe_sharing(held)
    seen = {} if canary is None else {key: canary[key] for key in ("matmul_seen", "conv_seen")}
    if alone and readings.get("state_update") == "in place":
        readings["state_update"] = _read_update(runtime, program)
    buffers = _count_input_buffers(runtime, program)
    waits = _count_waits(runtime, program)
    watched = runtime.watch_step(program) if alone else {}  # last, as it may interrupt a step
    return {
        **readings,
        **seen,
        **watched,
        "input_buffers": buffers,
        "synchronisation": waits + _describe_calls(watched.get("host_calls", NONE)),
        "reach": describe_reach(),
        "wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        "variables": " ".join(f"{k}={os.environ[k]}" for k in _VARIABLES if k in os.environ),
    }


def _count_input_buffers(runtime: Runtime, program: BoundProgram) -> str:
    """How many input buffers the steps were really given; `none` without inputs."""
    if next(list_arrays(program.inputs), None) is None:
        return "none"
    taken = program.rotation.watch(program.step)
    return str(len({_find_addresses(runtime, each) for each in taken}))


def _read_update(runtime: Runtime, program: BoundProgram) -> str:
    """`in place` where the next step freed most of what a step returned, or wrote over it."""
    earlier = list(list_arrays(program.plain_step()))
    sizes = [int(each.nbytes) for each in earlier]
    later = list(list_arrays(program.plain_step()))
    written = {_find_address(runtime, each) for each in later if not hasattr(each, "is_deleted")}
    left = sum(
        size
        for each, size in zip(earlier, sizes, strict=True)
        if not _is_gone(runtime, each, written)
    )
    return "in place" if 2 * left <= sum(sizes) else "copied"


def _is_gone(runtime: Runtime, array: Any, written: Set[int]) -> bool:
    """Whether JAX gave an array to a later step, or torch wrote a later result in its place."""
    if hasattr(array, "is_deleted"):
        return bool(array.is_deleted())
    return _find_address(runtime, array) in written


def _count_waits(runtime: Runtime, program: BoundProgram) -> str:
    """How often the clock's own loop waits in a block of some steps."""
    waits = 0

    def count(outputs: object) -> None:
        nonlocal waits
        waits += 1
        runtime.synchronise(outputs)

    run_steps(program.plain_step, _STEPS, LARGEST_GROUP, runtime.release, count)
    return "one wait a block" if waits == 1 else f"{waits} waits in {_STEPS} steps"


def _describe_calls(calls: str) -> str:
    return "" if calls == NONE else f", and in each step {calls}"


def _join_rates(rates: Iterable[float]) -> str:
    return " ".join(f"{rate:.4g}" for rate in sorted(rates)) or "none"


def _find_addresses(runtime: Runtime, inputs: Any) -> tuple[int, ...]:
    """Addresses of all arrays: sets may share one, such as labels on a CPU."""
    return tuple(_find_address(runtime, each) for each in list_arrays(inputs))


def _find_address(runtime: Runtime, array: Any) -> int:
    """It may have been left on the host by mistake."""
    on_host = getattr(array, "__array_interface__", None)
    return runtime.address(array) if on_host is None else on_host["data"][0]


def join_readings(readings: Iterable[object]) -> str:
    """Several readings joined by `+`, or `none`, so that a mixture is visible."""
    return "+".join(sorted({str(each) for each in readings})) or "none"


def xla_flag(name: str) -> str | None:
    """The value of an XLA flag, the last one if repeated, as in XLA; None = not set."""
    found = None
    for flag in os.environ.get("XLA_FLAGS", "").split():
        key, equals, value = flag.lstrip("-").partition("=")
        if key == name:
            found = value if equals else "true"
    return found


def read_xla() -> str:
    """The values of the setting `xla` whose flags XLA was given; `usual` without any."""
    given = os.environ.get("XLA_FLAGS", "").split()
    return "+".join(name for name, flag in XLA_FLAGS.items() if flag in given) or "usual"

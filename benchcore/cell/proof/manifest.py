"""The parity manifest: the settings in force on this side after its run, as a flat table of text.

Each runtime reads back its own framework; what both sides share is read here. Outside, two
manifests are compared in `benchcore.verdict.duel.parity`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchcore.cell.runtime import Runtime
    from benchcore.program import Program

_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "KMP_BLOCKTIME",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "XLA_FLAGS",
)


def read_manifest(
    runtime: Runtime, program: Program, canary: Mapping[str, Any] | None
) -> dict[str, str]:
    """The framework's settings, the canary's result, and the relevant environment variables."""
    held = program.held()
    seen = {} if canary is None else {key: canary[key] for key in ("matmul_seen", "conv_seen")}
    return {
        **runtime.manifest(held),
        "input_buffers": _count_input_buffers(runtime, program, held),
        **seen,
        "synchronisation": "one wait a block",  # the only mode of the harness loop
        "wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        "variables": " ".join(f"{k}={os.environ[k]}" for k in _VARIABLES if k in os.environ),
    }


def _count_input_buffers(runtime: Runtime, program: Program, held: Mapping[str, Any]) -> str:
    """Number of input buffers that the steps really used; `none` without inputs."""
    if "rotation" not in held:
        return "1" if "inputs" in held else "none"
    taken = held["rotation"].watch(program.step)
    return str(len({runtime.address(first) for first, *_ in taken}))


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


def walk_equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of the jaxprs inside it, found without importing JAX."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, (list, tuple)) else (value,):
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    yield from walk_equations(inner)

"""What a JAX contender that crashed in its autotuner is tried with next, narrowest cure first.

Not run on a GPU: the flags are XLA's, found in the strings of jaxlib 0.10.1.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchcore.cell.causes import Cause

_CLIMBING: frozenset[Cause] = frozenset({"illegal_address", "cuda_error", "autotuning", "signal"})


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One more try, with these flags added to XLA_FLAGS; none = a plain retry."""

    number: int
    flags: tuple[str, ...]
    name: str = ""
    """As the setting `cure` of JAX's arms calls it."""

    def describe(self) -> str:
        """As results tell it."""
        return f"rung {self.number} ({' '.join(self.flags) or 'a plain retry'})"


def describe_attempt(
    status: str, failure: Mapping[str, Any] | None, rung: Rung | None = None
) -> dict[str, Any]:
    """What became of one more try, as results hold it."""
    ended = failure or {}
    return {
        **({} if rung is None else {"rung": rung.number, "flags": list(rung.flags)}),
        "status": status,
        **{key: ended.get(key) for key in ("cause", "stage", "reason")},
    }


CLEAN = Rung(number=0, flags=())
RUNGS = tuple(
    Rung(number=number, name=name, flags=flags)
    for number, (name, flags) in enumerate(
        (
            ("retry", ()),
            ("autotune-5", ("--xla_gpu_autotune_level=5",)),
            ("no-triton-gemm", ("--xla_gpu_enable_triton_gemm=false",)),
            (
                "no-fusion-autotuner",
                ("--xla_gpu_experimental_enable_fusion_autotuner=false",),
            ),
            ("autotune-0", ("--xla_gpu_autotune_level=0",)),
        ),
        start=1,
    )
)


HIGHEST = "fp32_ieee"
"""JAX's precision `highest`: cures products in TF32, and is a different case; never a rung."""


def is_another_case(precision: str) -> bool:
    """Whether precision `highest` would change what a case computes: in all others JAX has it."""
    return precision == "tf32"


def climbs(framework: str, status: str, cause: Cause) -> bool:
    """Whether another try makes sense: crashes of JAX alone, never memory, time or numbers, nor a
    broken board."""
    return framework == "jax" and status == "crash" and cause in _CLIMBING


def usable_rungs(device: str, knows: Callable[[str], bool]) -> Iterator[Rung]:
    """The rungs that could cure anything: on a CPU, where no flag of a GPU does, a plain retry.

    Whether a flag is known is asked only when its turn comes: XLA aborts at one that it is not.
    """
    rungs = [rung for rung in RUNGS if device != "cpu" or not rung.flags]
    return (rung for rung in rungs if all(knows(flag) for flag in rung.flags))


def knows_flag(python: str, environment: Mapping[str, str], flag: str) -> bool:
    """Whether the XLA of an environment takes a flag: tried in a process of its own."""
    program = "import jax; jax.devices()"
    try:
        done = subprocess.run(
            [python, "-P", "-s", "-c", program],
            env={**environment, "XLA_FLAGS": flag},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=120,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0

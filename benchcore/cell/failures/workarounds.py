"""The workarounds that the crash ladder tries on a JAX contender that crashed, narrowest first.

Not run on a GPU: the flags are XLA's, found in the strings of jaxlib 0.10.1.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchcore.cell.failures.status import Cause
from benchcore.workloads.settings import XLA_FLAGS

_RETRIED: frozenset[Cause] = frozenset({"illegal_address", "cuda_error", "autotuning", "signal"})


@dataclass(frozen=True, kw_only=True)
class Workaround:
    """One attempt: flags added to XLA_FLAGS; no flags = a plain retry."""

    number: int
    flags: tuple[str, ...]
    name: str = ""
    """The value of the setting `workaround` of JAX's arms that applies it."""

    def describe(self) -> str:
        """The text for results."""
        return f"workaround {self.number} ({' '.join(self.flags) or 'a plain retry'})"


def describe_attempt(
    status: str, failure: Mapping[str, Any] | None, workaround: Workaround | None = None
) -> dict[str, Any]:
    """The end of an attempt, in the format of results."""
    ended = failure or {}
    tried = workaround and {"workaround": workaround.number, "flags": list(workaround.flags)}
    return {
        **(tried or {}),
        "status": status,
        **{key: ended.get(key) for key in ("cause", "stage", "reason")},
    }


NO_WORKAROUND = Workaround(number=0, flags=())
WORKAROUNDS = tuple(
    Workaround(number=number, name=name, flags=flags)
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
"""JAX's precision `highest` avoids crashes in TF32 products, but makes it a different case."""


def highest_changes_case(precision: str) -> bool:
    """Whether precision `highest` changes what a case computes: all but `tf32` already have it."""
    return precision == "tf32"


def may_retry(framework: str, status: str, cause: Cause) -> bool:
    """Whether a retry makes sense: for crashes of JAX, but not for out of memory, time-outs, wrong
    numbers or a broken board."""
    return framework == "jax" and status == "crash" and cause in _RETRIED


def usable_workarounds(device: str, knows: Callable[[str], bool]) -> Iterator[Workaround]:
    """The workarounds that could help. On a CPU, where GPU flags do nothing, only a plain retry.

    A flag is only checked when its workaround is next: XLA aborts at an unknown flag.
    """
    usable = [each for each in WORKAROUNDS if device != "cpu" or not each.flags]
    return (each for each in usable if all(knows(flag) for flag in each.flags))


def knows_flag(python: str, environment: Mapping[str, str], flag: str) -> bool:
    """Whether an environment's XLA accepts a flag, checked in a separate process."""
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


def xla_flags_of(settings: Mapping[str, Any], device: str) -> tuple[str, ...]:
    """The XLA flags of a contender's settings and workaround; on a CPU only that of `xla`.

    Not run on a GPU.
    """
    named = XLA_FLAGS.get(str(settings.get("xla")))
    extra = () if named is None else (named,)
    if device == "cpu":
        return extra
    graphs = settings.get("command_buffers", "on")
    flags = ("--xla_gpu_enable_command_buffer=",) if graphs == "off" else ()
    if settings.get("processes") == "per-device":  # else all must compile whenever one does
        flags += ("--xla_gpu_shard_autotuning=false",)
    chosen = [each.flags for each in WORKAROUNDS if each.name == settings.get("workaround")]
    return (*extra, *flags, *(flag for each in chosen for flag in each))

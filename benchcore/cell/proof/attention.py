"""Which kernels compute a side's attention: torch's switches, and JAX's calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

USUAL = "usual"
_SWITCHES = {
    "math": "math_sdp",
    "flash": "flash_sdp",
    "efficient": "mem_efficient_sdp",
    "cudnn": "cudnn_sdp",
}
"""By value of the setting: the switch in `torch.backends.cuda`, which a CPU obeys, too."""
_OF_CUDNN = "dot_product_attention_"
"""How the names of JAX's primitives for cuDNN's attention begin."""


def choose_in_torch(torch: Any, wanted: str) -> None:
    """Leave `scaled_dot_product_attention` one kernel; `usual` leaves it all. Where that one can't
    compute the case, torch raises."""
    for name in _SWITCHES if wanted != USUAL else ():
        getattr(torch.backends.cuda, f"enable_{_SWITCHES[name]}")(name == wanted)


def list_in_torch(torch: Any) -> list[str]:
    """The kernels that `scaled_dot_product_attention` may choose."""
    switches = torch.backends.cuda
    return [name for name, each in _SWITCHES.items() if getattr(switches, f"{each}_enabled")()]


def describe_in_torch(torch: Any, usual: list[str]) -> str:
    """The manifest's reading: the kernels that torch may choose, or `usual` if it may choose all
    that it could when it was imported."""
    enabled = list_in_torch(torch)
    return USUAL if enabled == usual else "+".join(enabled) or "none"


def describe_in_jax(primitives: Iterable[str]) -> str:
    """The manifest's reading, from the names of a step's primitives: cuDNN's kernels are called by
    name, and XLA compiles any other attention as the products that it is."""
    return "cudnn" if any(name.startswith(_OF_CUDNN) for name in primitives) else USUAL

"""What programs in PyTorch share: compiled functions, and copies on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def compile_function(
    function: Callable[..., Any], mode: str, *, whole: bool = True
) -> Callable[..., Any]:
    """Compiled by torch, unless the mode is `none`. `whole` makes a graph break an error."""
    return function if mode == "none" else torch.compile(function, mode=mode, fullgraph=whole)


def to_host(tensor: torch.Tensor) -> np.ndarray:
    """A copy in at least float32: numpy has no bfloat16. Of what is sharded all processes must ask
    for one."""
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor  # type: ignore[operator]
    return widen(tensor.detach()).cpu().numpy().copy()


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """bfloat16 becomes float32, which is exact; float64 stays."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))

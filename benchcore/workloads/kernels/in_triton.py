"""The kernels in Triton: one program per row, which it reads and writes once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from benchcore.workloads.kernels.spec import EPSILON


@triton.jit
def _softmax_kernel(rows, result, width: tl.constexpr):
    at = tl.program_id(0) * width + tl.arange(0, width)
    row = tl.load(rows + at)
    raised = tl.exp(row - tl.max(row, axis=0))
    tl.store(result + at, raised / tl.sum(raised, axis=0))


@triton.jit
def _rms_norm_kernel(rows, scale, result, width: tl.constexpr, epsilon: tl.constexpr):
    columns = tl.arange(0, width)
    at = tl.program_id(0) * width + columns
    row = tl.load(rows + at)
    mean = tl.sum(row * row, axis=0) / width
    tl.store(result + at, row / tl.sqrt(mean + epsilon) * tl.load(scale + columns))


def _softmax(rows: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(rows)
    _softmax_kernel[(len(rows),)](rows, result, rows.shape[1])
    return result


def _rms_norm(rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(rows)
    _rms_norm_kernel[(len(rows),)](rows, scale, result, rows.shape[1], EPSILON)
    return result


KERNELS: Mapping[str, Callable[..., torch.Tensor]] = {"softmax": _softmax, "rms_norm": _rms_norm}

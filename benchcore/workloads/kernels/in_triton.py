"""The kernels in Triton: one program per row, which it reads and writes once, or per tile of a
product, which sums the rows' squares beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl

from benchcore.workloads.kernels.spec import EPSILON

_TILE, _PART, _EPSILON = tl.constexpr(16), tl.constexpr(32), tl.constexpr(EPSILON)
"""Rows of a product's tile, its columns, which are also the places of a row at a time."""


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


@triton.jit
def _rms_norm_linear_kernel(
    rows, scale, weight, result, width: tl.constexpr, outputs: tl.constexpr
):
    row = tl.program_id(0) * _TILE + tl.arange(0, _TILE)
    column = tl.program_id(1) * _PART + tl.arange(0, _PART)
    total = tl.zeros((_TILE, _PART), tl.float32)
    squares = tl.zeros((_TILE,), tl.float32)
    for begin in range(0, width, _PART):
        at = begin + tl.arange(0, _PART)
        given = tl.load(rows + row[:, None] * width + at[None, :])
        squares += tl.sum(given * given, axis=1)
        scaled = given * tl.load(scale + at)[None, :]
        taps = tl.load(weight + at[:, None] * outputs + column[None, :])
        total += tl.dot(scaled, taps, input_precision="ieee")
    norms = tl.sqrt(squares / width + _EPSILON)
    tl.store(result + row[:, None] * outputs + column[None, :], total / norms[:, None])


def _softmax(rows: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(rows)
    _softmax_kernel[(len(rows),)](rows, result, rows.shape[1])
    return result


def _rms_norm(rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(rows)
    _rms_norm_kernel[(len(rows),)](rows, scale, result, rows.shape[1], EPSILON)
    return result


@torch.library.custom_op("deadheat::rms_norm_linear", mutates_args=())
def _rms_norm_linear(rows: torch.Tensor, scale: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """An operator of torch's, so that its product is counted (`cell/explain/torch_products.py`)."""
    width, outputs = weight.shape
    result = rows.new_empty((len(rows), outputs))
    grid = (len(rows) // _TILE.value, outputs // _PART.value)
    _rms_norm_linear_kernel[grid](rows, scale, weight, result, width, outputs)
    return result


KERNELS: Mapping[str, Callable[..., torch.Tensor]] = {
    "softmax": _softmax,
    "rms_norm": _rms_norm,
    "rms_norm_linear": _rms_norm_linear,
}

"""The table's operations in PyTorch: one call each, eager or compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from benchcore.program import Arrays, ByName, Program, Settings
from benchcore.workloads.ops.spec import Case
from benchcore.workloads.ops.table import LAYER_NORM_EPSILON, split_complex
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def _layer_norm(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, scale.shape, scale, offset, LAYER_NORM_EPSILON)


CALLS: Mapping[str, Callable[..., torch.Tensor]] = {
    "elementwise_chain": lambda x: x.sin().square().sum(1),
    "softmax": lambda x: torch.softmax(x, 1),
    "layer_norm": _layer_norm,
    "sum_rows": lambda x: x.sum(1),
    "sum_columns": lambda x: x.sum(1),
    "cumulative_sum": lambda x: torch.cumsum(x, 1),
    "sort": lambda x: torch.sort(x, 1).values,
    "fft": lambda x: torch.fft.rfft(x),
    "gather": lambda table, index: table.index_select(0, index),
    "scatter_add": lambda updates, index: torch.zeros_like(updates).index_add(0, index, updates),
    "attention": torch.nn.functional.scaled_dot_product_attention,
    "batched_matmul": torch.bmm,
    "transposed_convolution": lambda images, weight: torch.nn.functional.conv_transpose2d(
        images, weight, stride=2
    ),
}


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the arrays on the device; a step computes the operation of the next set."""
    wanted = read_settings(settings, TORCH_COMPILE)
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    compute = CALLS[case.operation]
    if wanted.compile != "none":
        compute = torch.compile(compute, mode=wanted.compile, fullgraph=True)

    def place(array: np.ndarray) -> torch.Tensor:
        own = torch.int32 if array.dtype == np.int32 else dtype
        return torch.tensor(array, device=wanted.device, dtype=own)

    def step(inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        with torch.inference_mode():
            return compute(*inputs)

    def read(result: torch.Tensor) -> ByName:
        if result.is_complex():
            return {"result": split_complex(result.cpu().numpy())}
        return {"result": result.float().cpu().numpy().copy()}

    return Program(
        place=lambda inputs: tuple(place(array) for array in inputs.values()),
        step=step,
        read=read,
    )

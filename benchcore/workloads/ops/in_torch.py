"""The table's operations in PyTorch: one call each, eager or compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch

from benchcore.program import Arrays, ByName, Program, Settings, State
from benchcore.workloads.ops.spec import Case
from benchcore.workloads.ops.table import LAYER_NORM_EPSILON, OPERATIONS, Shape, split_complex
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def _layer_norm(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, scale.shape, scale, offset, LAYER_NORM_EPSILON)


def _linspace_chain(low: torch.Tensor, high: torch.Tensor, size: Shape) -> torch.Tensor:
    # Eagerly `torch.linspace` reads ends that are tensors to the host. This is its formula.
    share = torch.arange(size[1], dtype=low.dtype, device=low.device) / (size[1] - 1)
    return torch.lerp(low, high, share).sin().square().sum()


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
    "linspace_chain": _linspace_chain,
    "random_uniform": lambda size, device: torch.rand(size, device=device),
    "random_normal": lambda size, device: torch.randn(size, device=device),
}


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the arrays on the device; a step computes the operation of the next set."""
    wanted = read_settings(settings, TORCH_COMPILE)
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    call, row = CALLS[case.operation], OPERATIONS[case.operation]
    compute = functools.partial(call, size=case.size) if row.takes_size else call
    if row.draws:
        compute = functools.partial(compute, device=torch.device(wanted.device))
    if wanted.compile != "none":
        compute = torch.compile(compute, mode=wanted.compile, fullgraph=True)
    if row.draws:
        return _draw(compute, arrays, torch.device(wanted.device))

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

    def place_all(inputs: ByName) -> tuple[torch.Tensor, ...]:
        if "ends" in inputs:  # of an interval: two numbers
            return tuple(place(each) for each in inputs["ends"][:2])
        return tuple(place(array) for array in inputs.values())

    return Program(place=place_all, step=step, read=read)


def _draw(compute: Callable[..., torch.Tensor], arrays: Arrays, device: torch.device) -> Program:
    """Each step moves the device's own generator on: how torch's users draw numbers."""
    on_gpu, seed = device.type == "cuda", arrays.params["seed"]

    def reset(params: ByName) -> None:
        nonlocal seed
        seed = params["seed"]
        if "generator" not in params:
            torch.manual_seed(int(seed[0]))
            return
        found = torch.from_numpy(params["generator"])
        torch.cuda.set_rng_state(found, device) if on_gpu else torch.set_rng_state(found)

    def state() -> State:
        found = torch.cuda.get_rng_state(device) if on_gpu else torch.get_rng_state()
        return {"params": {"seed": seed, "generator": found.numpy().copy()}}

    def step(inputs: object) -> torch.Tensor:
        with torch.inference_mode():
            return compute()

    reset(arrays.params)
    return Program(
        step=step,
        reset=reset,
        state=state,
        read=lambda numbers: {"numbers": numbers.cpu().numpy().copy()},
    )

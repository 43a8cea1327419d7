"""The matrix product in PyTorch: one `torch.matmul`."""

from __future__ import annotations

import torch

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.matmul.spec import Case
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the matrices on the device; a step multiplies the next pair."""
    wanted = read_settings(settings, TORCH_COMPILE)
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    multiply = torch.matmul
    if wanted.compile != "none":
        multiply = torch.compile(torch.matmul, mode=wanted.compile, fullgraph=True)

    def step(inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        with torch.inference_mode():
            return multiply(*inputs)

    return Program(
        place=lambda inputs: tuple(
            torch.tensor(inputs[name], device=wanted.device, dtype=dtype) for name in ("a", "b")
        ),
        step=step,
        read=lambda product: {"product": product.float().cpu().numpy().copy()},
    )

"""The matrix product in PyTorch: one `torch.matmul`."""

from __future__ import annotations

import torch

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.matmul.spec import Case
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Both matrices on the device that the settings name; a step multiplies them."""
    wanted = read_settings(settings, TORCH_COMPILE)
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    a, b = (
        torch.tensor(arrays.inputs[name], device=wanted.device, dtype=dtype) for name in ("a", "b")
    )
    multiply = torch.matmul
    if wanted.compile != "none":
        multiply = torch.compile(torch.matmul, mode=wanted.compile, fullgraph=True)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            return multiply(a, b)

    return Program(step=step, evidence=lambda: {"product": step().float().cpu().numpy().copy()})

"""The matrix product in PyTorch: one `torch.matmul`."""

from __future__ import annotations

import numpy as np
import torch

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.matmul.spec import Case
from benchcore.workloads.rotation import Rotation, roll
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the matrices on the device; a step multiplies the next pair."""
    wanted = read_settings(settings, TORCH_COMPILE)
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    rotation = Rotation(
        [
            tuple(
                torch.tensor(given[name], device=wanted.device, dtype=dtype) for name in ("a", "b")
            )
            for given in roll(arrays.inputs, case.buffers)
        ]
    )
    first = rotation.buffers[0]
    multiply = torch.matmul
    if wanted.compile != "none":
        multiply = torch.compile(torch.matmul, mode=wanted.compile, fullgraph=True)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            return multiply(*rotation.take())

    def evidence() -> dict[str, np.ndarray]:
        with torch.inference_mode():
            return {"product": multiply(*first).float().cpu().numpy().copy()}

    return Program(
        step=step, evidence=evidence, held=lambda: {"inputs": first, "rotation": rotation}
    )

"""The copy in PyTorch: one `Tensor.neg_`."""

from __future__ import annotations

import torch

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.copy.spec import Case
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the array on the device; a step negates it in place."""
    wanted = read_settings(settings, TORCH_COMPILE)
    copied = torch.Tensor.neg_
    if wanted.compile != "none":
        copied = torch.compile(torch.Tensor.neg_, mode=wanted.compile, fullgraph=True)

    def place() -> torch.Tensor:
        return torch.tensor(arrays.params["values"], device=wanted.device)

    values = place()

    def step() -> torch.Tensor:
        return copied(values)

    return Program(step=step, evidence=lambda: {"copied": copied(place()).cpu().numpy().copy()})

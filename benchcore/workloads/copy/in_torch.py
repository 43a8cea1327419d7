"""The copy in PyTorch: one `Tensor.neg_`."""

from __future__ import annotations

import torch

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.copy.spec import Case, digest_copy
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the array on the device; a step negates it in place."""
    wanted = read_settings(settings, TORCH_COMPILE)
    copied = torch.Tensor.neg_
    if wanted.compile != "none":
        copied = torch.compile(torch.Tensor.neg_, mode=wanted.compile, fullgraph=True)

    values = torch.tensor(arrays.params["values"], device=wanted.device)
    return Program(
        step=lambda inputs: copied(values),
        reset=lambda params: values.copy_(torch.tensor(params["values"])),
        read=lambda copy: digest_copy(copy.cpu().numpy()),
    )

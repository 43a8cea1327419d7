"""The convolution in PyTorch: `conv2d`, or autograd's operator for its weight gradient; NCHW."""

from __future__ import annotations

import torch

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.convolution.spec import Case
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the arrays on the device; a step computes the convolution or its weight gradient."""
    wanted = read_settings(settings, TORCH_COMPILE)
    edge = case.kernel // 2

    def convolve(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(images, weight, padding=edge, groups=case.groups)

    def differentiate(
        images: torch.Tensor, weight: torch.Tensor, cotangent: torch.Tensor
    ) -> torch.Tensor:
        return torch.ops.aten.convolution_backward(
            cotangent, images, weight, None, [1, 1], [edge, edge], [1, 1], False, [0, 0],
            case.groups, [False, True, False],
        )[1]  # fmt: skip

    name, work = ("gradient", differentiate) if case.gradient else ("output", convolve)
    if wanted.compile != "none":
        work = torch.compile(work, mode=wanted.compile, fullgraph=True)

    def step(inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        with torch.inference_mode():
            return work(*inputs)

    return Program(
        place=lambda inputs: tuple(
            torch.tensor(array, device=wanted.device) for array in inputs.values()
        ),
        step=step,
        read=lambda output: {name: output.cpu().numpy().copy()},
    )

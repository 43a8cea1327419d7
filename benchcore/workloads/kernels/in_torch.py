"""The kernels in PyTorch: eager operations, what Inductor fuses, or Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from benchcore.program import Arrays, Program, Settings, UnsupportedError
from benchcore.workloads.kernels.spec import EPSILON, SETTINGS, Case
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def _softmax(rows: torch.Tensor) -> torch.Tensor:
    return torch.softmax(rows, 1)


def _rms_norm(rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(rows, scale.shape, scale, EPSILON)


def _rms_norm_linear(rows: torch.Tensor, scale: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return _rms_norm(rows, scale) @ weight


FORMULAS: Mapping[str, Callable[..., torch.Tensor]] = {
    "softmax": _softmax,
    "rms_norm": _rms_norm,
    "rms_norm_linear": _rms_norm_linear,
}


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the rows on the device; a step computes the formula of the next set."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    formula = FORMULAS[case.formula]
    if wanted.kernel == "triton":
        if wanted.platform == "cpu":
            raise UnsupportedError("a Triton kernel needs a GPU; on a CPU it is only interpreted")
        from benchcore.workloads.kernels.in_triton import KERNELS

        formula = KERNELS[case.formula]
    elif wanted.compile != "none":
        formula = torch.compile(formula, mode=wanted.compile, fullgraph=True)

    def step(inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        with torch.inference_mode():
            return formula(*inputs)

    return Program(
        place=lambda inputs: tuple(
            torch.tensor(array, device=wanted.device) for array in inputs.values()
        ),
        step=step,
        read=lambda result: {"result": result.cpu().numpy().copy()},
    )

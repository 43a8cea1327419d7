"""The stack of layers in PyTorch: eager, or compiled for each length or for all of them."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from benchcore.program import Arrays, ByName, Program, Settings
from benchcore.workloads.recompile.spec import SETTINGS, Case, join, make_new, split
from benchcore.workloads.settings import TORCH_COMPILE, read_settings

Params = dict[str, torch.Tensor]
Batches = tuple[torch.Tensor, ...]
_DYNAMIC = {"automatic": None, "static": False, "dynamic": True}


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the weights on the device; a step computes all batches of the next set."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    params = {
        name: torch.tensor(array, device=wanted.device) for name, array in arrays.params.items()
    }

    def forward(params: Params, rows: torch.Tensor) -> torch.Tensor:
        value = rows
        for index, name in enumerate(case.layers):
            value = functional.relu(value) if index else value
            value = functional.linear(value, params[f"{name}.weight"], params[f"{name}.bias"])
        return value

    compute = forward
    if wanted.compile != "none":
        dynamic = _DYNAMIC[wanted.shapes]
        compute = torch.compile(forward, mode=wanted.compile, fullgraph=True, dynamic=dynamic)

    def place(batches: list[np.ndarray]) -> Batches:
        return tuple(torch.tensor(each, device=wanted.device) for each in batches)

    def step(batches: Batches) -> list[torch.Tensor]:
        with torch.inference_mode():
            return [compute(params, each) for each in batches]

    def reset(given: ByName) -> None:
        for name, param in params.items():
            param.copy_(torch.tensor(given[name]))

    return Program(
        place=lambda inputs: place(split(case, inputs)),
        step=step,
        reset=reset,
        read=lambda results: join(case, [each.cpu().numpy() for each in results]),
        held=lambda batches: {
            "params": list(params.values()),
            "inputs": batches,
            "output_dtype": step(batches)[0].dtype,
            "compile_mode": wanted.compile,
        },
        new_shapes=lambda: [place([each]) for each in make_new(case, arrays.inputs)],
    )

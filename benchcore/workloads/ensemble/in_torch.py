"""The ensemble in PyTorch: one network after the other, `torch.func.vmap` over stacked weights (as
`torch.func.stack_module_state` stacks them), or batched products and grouped convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch.nn import functional

from benchcore.program import Arrays, ByName, Program, Settings
from benchcore.workloads.ensemble.spec import SETTINGS, Case
from benchcore.workloads.settings import TORCH_COMPILE, read_settings

Params = dict[str, torch.Tensor]
Network = Callable[[Params, torch.Tensor], torch.Tensor]


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up all networks on the device; a step computes their outputs, or losses and gradients."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    infer = case.use_case == "infer"
    tracked = not infer and wanted.batching != "vmap"  # its gradients are functions of torch.func
    params = {
        name: torch.tensor(array, device=wanted.device).requires_grad_(tracked)
        for name, array in arrays.params.items()
    }
    forward = _FORWARD[wanted.batching](case)
    compute = forward if infer else _DIFFERENTIATE[wanted.batching](case, forward)
    if wanted.compile != "none":
        compute = torch.compile(compute, mode=wanted.compile, fullgraph=True)
    finish = _leave if infer or wanted.batching == "vmap" else _pull

    def step(inputs: torch.Tensor) -> object:
        with torch.inference_mode(infer):
            return finish(compute(params, inputs), params)

    def reset(given: ByName) -> None:
        with torch.no_grad():
            for name, param in params.items():
                param.copy_(torch.tensor(given[name]))

    return Program(
        place=lambda inputs: torch.tensor(inputs["images"], device=wanted.device),
        step=step,
        reset=reset,
        read=_read_outputs(case) if infer else _read_gradient,
        held=lambda inputs: {
            "params": [param[0] for param in params.values()],  # as one network has them
            "inputs": inputs,
            "output_dtype": torch.utils._pytree.tree_leaves(step(inputs))[0].dtype,
            "compile_mode": wanted.compile,
        },
    )


def _leave(found: object, params: Params) -> object:
    return found


def _pull(loss: torch.Tensor, params: Params) -> tuple[torch.Tensor, Params]:
    """The gradients of all losses: each depends on its own network alone."""
    found = torch.autograd.grad(loss, list(params.values()), torch.ones_like(loss))
    return loss.detach(), dict(zip(params, found, strict=True))


def _network(case: Case) -> Network:
    """One network: `images` (batch, channels, side, side)."""

    def forward(params: Params, images: torch.Tensor) -> torch.Tensor:
        value = images if case.convolves else images.flatten(1)
        for index, (name, _, _) in enumerate(case.layers):
            value = functional.silu(value) if index else value
            weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
            if case.convolves:
                value = functional.conv2d(value, weight, bias, padding=1)
            else:
                value = functional.linear(value, weight, bias)
        return value

    return forward


def _loop(case: Case) -> Network:
    one = _network(case)

    def forward(params: Params, images: torch.Tensor) -> torch.Tensor:
        apart = {name: param.unbind() for name, param in params.items()}
        outputs = [
            one({name: parts[index] for name, parts in apart.items()}, each)
            for index, each in enumerate(images.unbind())
        ]
        # Of one network a stack would be a copy, which no step needs.
        return torch.stack(outputs) if len(outputs) > 1 else outputs[0].unsqueeze(0)

    return forward


def _batched(case: Case) -> Network:
    """Convolutions have the networks side by side in their channels, as groups."""

    def multiply(params: Params, images: torch.Tensor) -> torch.Tensor:
        value = images.flatten(2)
        for index, (name, _, _) in enumerate(case.layers):
            value = functional.silu(value) if index else value
            weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
            value = torch.baddbmm(bias.unsqueeze(1), value, weight.transpose(1, 2))
        return value

    def convolve(params: Params, images: torch.Tensor) -> torch.Tensor:
        value = images.transpose(0, 1).flatten(1, 2)
        for index, (name, _, _) in enumerate(case.layers):
            value = functional.silu(value) if index else value
            weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
            value = functional.conv2d(
                value, weight.flatten(0, 1), bias.flatten(), padding=1, groups=case.models
            )
        return value.unflatten(1, (case.models, -1)).transpose(0, 1)

    return convolve if case.convolves else multiply


_FORWARD: Mapping[str, Callable[[Case], Network]] = {
    "loop": _loop,
    "vmap": lambda case: torch.func.vmap(_network(case)),
    "batched": _batched,
}


def _losses(case: Case, forward: Network) -> Callable[[Params, torch.Tensor], torch.Tensor]:
    return lambda params, images: forward(params, images).square().flatten(1).mean(1)


def _differentiate_each(case: Case, forward: Network) -> Callable[[Params, torch.Tensor], object]:
    one = _network(case)
    pull = torch.func.grad_and_value(lambda params, images: one(params, images).square().mean())

    def differentiate(params: Params, images: torch.Tensor) -> tuple[torch.Tensor, Params]:
        gradients, losses = torch.func.vmap(pull)(params, images)
        return losses, gradients

    return differentiate


_DIFFERENTIATE: Mapping[str, Callable[[Case, Network], Callable[..., object]]] = {
    "loop": _losses,
    "vmap": _differentiate_each,
    "batched": _losses,
}


def _read_outputs(case: Case) -> Callable[[torch.Tensor], ByName]:
    return lambda outputs: {"outputs": outputs.cpu().numpy().copy()}


def _read_gradient(found: tuple[torch.Tensor, Params]) -> ByName:
    loss, gradients = found
    parts = [gradients[name].cpu().numpy().ravel() for name in sorted(gradients)]
    return {"loss": loss.cpu().numpy().copy(), "gradient": np.concatenate(parts)}

"""Per-sample gradients in PyTorch: `vmap(grad)` of torch.func in chunks, a plain loop, or
Opacus."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed

from benchcore.program import UnsupportedError
from benchcore.workloads.networks.case import NORM_FLOOR, Case
from benchcore.workloads.settings import BuildSettings

Tensors = dict[str, torch.Tensor]
Inputs = tuple[torch.Tensor, ...]
Loss = Callable[[torch.nn.Module, Inputs], torch.Tensor]
"""(module, inputs with the labels last) -> the mean loss."""


def make_per_sample(
    case: Case,
    wanted: BuildSettings,
    module: torch.nn.Module,
    loss_of: Loss,
    compile_function: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Callable[[Inputs], dict[str, Any]]:
    """The norms of all samples' gradients, and the sum of them clipped to the case's norm."""
    params = dict(module.named_parameters())
    buffers = dict(module.named_buffers())
    if wanted.per_sample == "loop":
        size, of_chunk = 1, _make_of_one(params, module, loss_of)
    else:
        own = case.batch // case.devices
        size = own if wanted.chunk == "whole" else min(int(wanted.chunk), own)
        if wanted.per_sample == "opacus":
            of_chunk = _make_of_chunk_with_opacus(module, loss_of, wanted)
        else:
            of_chunk = _make_of_chunk(params, buffers, module, loss_of)

    def reduce(inputs: Inputs) -> tuple[torch.Tensor, Tensors]:
        gradients = of_chunk(inputs)
        squares = [each.flatten(1).square().sum(1) for each in gradients.values()]
        norms = torch.stack(squares).sum(0).sqrt()
        if case.reduction == "norms":
            return norms, {}
        factors = (case.clip / (norms + NORM_FLOOR)).clamp(max=1.0)
        # A product: faster than a sum of scaled copies where nothing is compiled.
        clipped = {
            name: torch.mv(each.flatten(1).t(), factors).view(each.shape[1:])
            for name, each in gradients.items()
        }
        return norms, clipped

    compiled = compile_function(reduce)

    def step(inputs: Inputs) -> dict[str, Any]:
        chunks = zip(*(each.split(size) for each in inputs), strict=True)
        norms, total = [], dict[str, torch.Tensor]()
        for chunk in chunks:
            found, clipped = compiled(chunk)
            norms.append(found)
            for name, each in clipped.items():
                total[name] = total[name].add_(each) if name in total else each
        joined = norms[0] if len(norms) == 1 else torch.cat(norms)
        if case.devices > 1:
            joined, total = _gather(joined, total)
        return {"norms": joined, "clipped_sum": total} if total else {"norms": joined}

    return step


def _gather(norms: torch.Tensor, total: Tensors) -> tuple[torch.Tensor, Tensors]:
    """The norms of all devices, and the sum over them, in one message each."""
    everyone = norms.new_empty(distributed.get_world_size() * len(norms))
    distributed.all_gather_into_tensor(everyone, norms)
    if not total:
        return everyone, total
    flat = torch.cat([each.flatten() for each in total.values()])
    distributed.all_reduce(flat)
    parts = flat.split([each.numel() for each in total.values()])
    return everyone, {
        name: part.view_as(each) for (name, each), part in zip(total.items(), parts, strict=True)
    }


def _make_of_chunk(
    params: Tensors, buffers: Mapping[str, torch.Tensor], module: torch.nn.Module, loss_of: Loss
) -> Callable[[Inputs], Tensors]:
    def loss_of_one(given: Tensors, example: Inputs) -> torch.Tensor:
        def forward(*inputs: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(module, (given, buffers), inputs)

        return loss_of(forward, tuple(each.unsqueeze(0) for each in example))  # type: ignore[arg-type]

    differentiate = torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0))

    def of_chunk(inputs: Inputs) -> Tensors:
        return differentiate(detached, inputs)

    detached = {name: each.detach() for name, each in params.items()}
    return of_chunk


def _make_of_one(
    params: Tensors, module: torch.nn.Module, loss_of: Loss
) -> Callable[[Inputs], Tensors]:
    """A backward pass for every example, as one writes it without torch.func."""

    def of_one(inputs: Inputs) -> Tensors:
        found = torch.autograd.grad(loss_of(module, inputs), list(params.values()))
        return {name: each.unsqueeze(0) for name, each in zip(params, found, strict=True)}

    return of_one


def _make_of_chunk_with_opacus(
    module: torch.nn.Module, loss_of: Loss, wanted: BuildSettings
) -> Callable[[Inputs], Tensors]:
    """Opacus' hooks compute the gradients of a chunk's samples layer by layer, in one backward.

    `loss.backward()` would compute the batch's gradient, too, which nothing here uses. So only that
    of the first parameter without a product is requested, whose way passes every layer's hooks.
    Raises UnsupportedError without Opacus, and where it can't hook the module.
    """
    if importlib.util.find_spec("opacus") is None:
        raise UnsupportedError(
            "wanted Opacus, which this environment lacks; request torch[opacus] in place of torch"
        )
    if wanted.compile != "none":
        raise UnsupportedError(
            f"wanted Opacus with compile=none, as its hooks can't be compiled, got compile="
            f"{wanted.compile}"
        )
    from opacus import GradSampleModule

    try:
        hooked = GradSampleModule(module.train(), loss_reduction="mean")  # it hooks no other
    except NotImplementedError as error:
        raise UnsupportedError(f"Opacus can't take this network: {error}") from error
    params = dict(module.named_parameters())
    first = _find_first(module)

    def of_chunk(inputs: Inputs) -> Tensors:
        torch.autograd.grad(loss_of(hooked, inputs), first)
        found = {name: each.grad_sample for name, each in params.items()}  # type: ignore[attr-defined]
        for each in params.values():
            each.grad_sample = None  # type: ignore[attr-defined]
        return found

    return of_chunk


def _find_first(module: torch.nn.Module) -> torch.Tensor:
    """An embedding's table or the bias of the first layer."""
    layer = next(each for each in module.modules() if [*each.parameters(recurse=False)])
    own = dict(layer.named_parameters(recurse=False))
    return own.get("bias", next(iter(own.values())))

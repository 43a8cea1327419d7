"""Per-sample gradients in PyTorch: `vmap(grad)` of torch.func in chunks, a plain loop, or
Opacus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
Scaled = tuple[torch.Tensor, Tensors]
"""The factor of each sample, and all their gradients, which it scales."""


def make_per_sample(
    case: Case,
    wanted: BuildSettings,
    module: torch.nn.Module,
    loss_of: Loss,
    compile_function: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Callable[[Inputs], dict[str, Any]]:
    """The norms of all samples' gradients, and the sum of them clipped to the case's norm."""
    params = dict(module.named_parameters())
    own = case.batch // case.devices
    size = own if wanted.chunk == "whole" else min(int(wanted.chunk), own)
    if wanted.per_sample == "loop":
        size = 1
    of_chunk = _choose_of_chunk(wanted, params, module, loss_of)

    def differentiate(inputs: Inputs) -> tuple[torch.Tensor, Scaled]:
        gradients = of_chunk(inputs)
        squares = [each.flatten(1).square().sum(1) for each in gradients.values()]
        norms = torch.stack(squares).sum(0).sqrt()
        if case.reduction == "norms":
            return norms, (norms, {})
        return norms, ((case.clip / (norms + NORM_FLOOR)).clamp(max=1.0), gradients)

    def reduce(inputs: Inputs) -> tuple[torch.Tensor, Tensors]:
        norms, scaled = differentiate(inputs)
        return norms, shape(_add_up(scaled))

    def shape(sums: Tensors) -> Tensors:
        return {name: each.view(params[name].shape) for name, each in sums.items()}

    compiled = compile_function(differentiate if size == 1 else reduce)

    def run(chunks: Iterable[Inputs], norms: list[torch.Tensor]) -> Iterator[Any]:
        for chunk in chunks:
            found, rest = compiled(chunk)
            norms.append(found)
            yield rest

    def step(inputs: Inputs) -> dict[str, Any]:
        norms: list[torch.Tensor] = []
        parts = run(zip(*(each.split(size) for each in inputs), strict=True), norms)
        total = shape(_sum_one_by_one(parts)) if size == 1 else _sum_chunks(parts)
        joined = norms[0] if len(norms) == 1 else torch.cat(norms)
        if case.devices > 1:
            joined, total = _gather(joined, total)
        return {"norms": joined, "clipped_sum": total} if total else {"norms": joined}

    return step


def _add_up(scaled: Scaled) -> Tensors:
    """The flat sums. A product: faster than a sum of scaled copies where nothing is compiled."""
    factors, gradients = scaled
    return {name: torch.mv(each.flatten(1).t(), factors) for name, each in gradients.items()}


def _sum_chunks(parts: Iterable[Tensors]) -> Tensors:
    total: Tensors = {}
    for part in parts:
        for name, each in part.items():
            total[name] = total[name].add_(each) if name in total else each
    return total


def _sum_one_by_one(samples: Iterator[Scaled]) -> Tensors:
    """Each sample is scaled and added in one operation."""
    total = _add_up(_take_two(samples))
    for factors, gradients in samples:
        for name, each in gradients.items():
            total[name].addmv_(each.flatten(1).t(), factors)
    return total


def _take_two(samples: Iterator[Scaled]) -> Scaled:
    """The first sample, with the second one if there is one: scaled alone, a gradient that is not
    clipped would be copied."""
    factors, gradients = next(samples)
    second = next(samples, None) if gradients else None
    if second is None:
        return factors, gradients
    joined = {name: torch.cat([each, second[1][name]]) for name, each in gradients.items()}
    return torch.cat([factors, second[0]]), joined


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


def _choose_of_chunk(
    wanted: BuildSettings, params: Tensors, module: torch.nn.Module, loss_of: Loss
) -> Callable[[Inputs], Tensors]:
    if wanted.per_sample == "loop":
        return _make_of_one(params, module, loss_of)
    if wanted.per_sample == "opacus":
        return _make_of_chunk_with_opacus(module, loss_of, wanted)
    return _make_of_chunk(params, dict(module.named_buffers()), module, loss_of)


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
    try:
        from opacus import GradSampleModule
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "wanted Opacus, which this environment lacks; request torch[opacus] in place of torch"
        ) from error
    if wanted.compile != "none":
        raise UnsupportedError(
            f"wanted Opacus with compile=none, as its hooks can't be compiled, got compile="
            f"{wanted.compile}"
        )
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

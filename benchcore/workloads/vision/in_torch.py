"""Inference and training of torchvision's own models in PyTorch.

With any compile mode but `none`, the forward pass and the loss are compiled, and by AOTAutograd
the backward pass too. The optimizer step is PyTorch's own, compiled only if the settings choose it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from benchcore.program import REFERENCE, Arrays, ByName, Program, Settings, State, Training
from benchcore.workloads.settings import (
    TORCH_COMPILE,
    BuildSettings,
    read_settings,
)
from benchcore.workloads.tensors.in_torch import compile_function, to_host, widen
from benchcore.workloads.vision.batches import in_torch as batches
from benchcore.workloads.vision.case import (
    ADAMW_BETAS,
    ADAMW_EPSILON,
    LABEL_SMOOTHING,
    MOMENTUM,
    SETTINGS,
    Case,
)
from benchcore.workloads.vision.pixels import make_seen

Tensors = dict[str, torch.Tensor]
Forward = Callable[[torch.Tensor], torch.Tensor]
Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """A model on the device, in the case's dtype and the settings' layout."""

    model: torch.nn.Module
    forward: Forward
    device: torch.device
    dtype: torch.dtype
    layout: torch.memory_format
    wanted: BuildSettings

    def place(self, inputs: ByName) -> Inputs:
        """Images (batch, 3, high, wide) in the layout, and labels where there are any."""
        images = torch.tensor(inputs["images"], device=self.device, dtype=self.dtype)
        images = images.contiguous(memory_format=self.layout)
        if "labels" not in inputs:
            return (images,)
        if "frozen-weights" in self.wanted.defects:
            images.requires_grad_()
        return images, torch.tensor(inputs["labels"], device=self.device).long()

    def reset(self, params: ByName) -> None:
        """Put these parameters and running statistics where the compiled function finds its own."""
        state = self.model.state_dict()
        _copy_into(state, {name: torch.tensor(array) for name, array in params.items()})

    def hold(self, inputs: Inputs) -> dict[str, object]:
        """What the manifest reads of both inference and training."""
        return {
            "module": self.model,
            "params": list(self.model.parameters()),
            "inputs": inputs,
            "compile_mode": self.wanted.compile,
        }


def build(
    case: Case, arrays: Arrays, settings: Settings, *, constructor: str, **options: Any
) -> Program:
    """Set up `torchvision.models.<constructor>(**options)` on the device in the settings."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    model = getattr(import_models(), constructor)(**options)
    placed = _place(case, arrays, wanted, model)
    if case.use_case == "infer":
        return _infer(placed)
    return _train(case, placed, arrays.params)


def _place(case: Case, arrays: Arrays, wanted: BuildSettings, model: torch.nn.Module) -> _Placed:
    last = wanted.layout == "channels_last"
    memory_format = torch.channels_last if last else torch.contiguous_format
    dtypes = {"bf16": torch.bfloat16, REFERENCE: torch.float64}
    dtype = dtypes.get(case.precision, torch.float32)
    model.load_state_dict(_state_dict(model, arrays.params), strict=True)
    model = model.train(case.use_case == "train")
    model = model.to(wanted.device, dtype, memory_format=memory_format)

    def autocast(images: torch.Tensor) -> torch.Tensor:
        with torch.autocast(wanted.platform, torch.bfloat16):
            return model(images)

    return _Placed(
        model=model,
        forward=autocast if case.precision == "bf16_autocast" else model,
        device=torch.device(wanted.device),
        dtype=dtype,
        layout=memory_format,
        wanted=wanted,
    )


def _infer(placed: _Placed) -> Program:
    compiled = compile_function(placed.forward, placed.wanted.compile)

    def step(inputs: Inputs) -> torch.Tensor:
        with torch.inference_mode():
            return compiled(*inputs)

    return Program(
        place=placed.place,
        step=step,
        reset=placed.reset,
        read=lambda logits: {"logits": to_host(logits)},
        held=lambda inputs: placed.hold(inputs) | {"output_dtype": step(inputs).dtype},
        layers=lambda inputs: _name_layers(placed, inputs[0]),
    )


def _name_layers(placed: _Placed, images: torch.Tensor) -> dict[str, np.ndarray]:
    """What every module with parameters of its own puts out, in forward order."""
    found: dict[str, np.ndarray] = {}

    def hook(name: str) -> Callable[..., None]:
        def keep(_module: torch.nn.Module, _given: Any, output: Any) -> None:
            attention = isinstance(output, tuple)  # its output and its weights
            found[name] = to_host(output[0] if attention else output)

        return keep

    handles = [
        module.register_forward_hook(hook(name))
        for name, module in placed.model.named_modules()
        if name and any(True for _ in module.parameters(recurse=False))
    ]
    with torch.no_grad():
        placed.forward(images)
    for handle in handles:
        handle.remove()
    return found


def _make_optimizer(
    case: Case, params: Mapping[str, torch.nn.Parameter], wanted: BuildSettings
) -> tuple[torch.optim.Optimizer, dict[str, Tensors]]:
    """torch's own, and by group the tensors it remembers things in, made here as zeros, from which
    step one is as defined."""
    usual = {"lr": case.learning_rate, "weight_decay": case.weight_decay}
    options: dict[str, Any] = {**usual, **wanted.optimizer_choice}
    optimizer: torch.optim.Optimizer
    if case.optimizer == "sgd":
        keys = {"momentum_buffer": "momentum"}
        optimizer = torch.optim.SGD(params.values(), momentum=MOMENTUM, **options)
    else:
        keys = {"exp_avg": "first_moment", "exp_avg_sq": "second_moment"}
        optimizer = torch.optim.AdamW(
            params.values(), betas=ADAMW_BETAS, eps=ADAMW_EPSILON, **options
        )
    groups: dict[str, Tensors] = {group: {} for group in keys.values()}
    for name, param in params.items():
        if case.optimizer == "adamw":
            # The fused kernel reads it on the device; the others do so in Python.
            where = param.device if wanted.optimizer == "fused" else None
            optimizer.state[param]["step"] = torch.tensor(0.0, device=where)
        for key, group in keys.items():
            groups[group][name] = optimizer.state[param][key] = torch.zeros_like(param)
    return optimizer, groups


def _train(case: Case, placed: _Placed, first: ByName) -> Program:
    model = placed.model
    params = dict(model.named_parameters())
    if "frozen-weights" in placed.wanted.defects:
        model.requires_grad_(False)
    optimizer, moments = _make_optimizer(case, params, placed.wanted)
    compiled = placed.wanted.optimizer == "compiled"
    update = torch.compile(optimizer.step) if compiled else optimizer.step

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = widen(placed.forward(images))
        return torch.nn.functional.cross_entropy(logits, labels, label_smoothing=LABEL_SMOOTHING)

    loss_function = compile_function(loss_of, placed.wanted.compile)
    trained = list(params.values())
    address = trained[-1].data_ptr()
    rates = {each: each.p for each in model.modules() if hasattr(each, "p")}

    def learn(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(images, labels)
        loss.backward()
        update()
        if "loss-fetched" in placed.wanted.defects:
            loss.item()
        return loss.detach()

    def reset(given: ByName) -> None:
        placed.reset(given)
        _clear(optimizer)

    def use_random(on: bool) -> None:
        """Dropout and stochastic depth, or neither: no two frameworks draw the same numbers."""
        for module, rate in rates.items():
            module.p = rate if on else 0.0

    def layers(inputs: Inputs) -> dict[str, np.ndarray]:
        use_random(False)
        found = _name_layers(placed, inputs[0])
        use_random(True)
        return found

    def held(inputs: Inputs) -> dict[str, object]:
        return placed.hold(inputs) | {
            "output_dtype": _output_dtype(placed, inputs[0]),
            "drop_rates": _list_drop_rates(placed, inputs[0]),
            "state_update": "in place" if trained[-1].data_ptr() == address else "copied",
        }

    return Program(
        place=placed.place,
        step=lambda inputs: (learn(*inputs), trained),
        reset=reset,
        read=lambda outputs: {"loss": to_host(outputs[0])},
        state=lambda: _read_state(model, moments),
        use_random=use_random,
        held=held,
        layers=layers,
        training=lambda: _make_training(placed, learn, trained, lambda: reset(first)),
    )


def _clear(optimizer: torch.optim.Optimizer) -> None:
    """Zeros for all that it remembers, in place: CUDA graphs hold on to these tensors."""
    for of in optimizer.state.values():
        for tensor in of.values():
            tensor.zero_()


def _read_state(model: torch.nn.Module, moments: Mapping[str, Tensors]) -> State:
    params = dict(model.named_parameters())
    statistics = {
        name: tensor
        for name, tensor in model.named_buffers()
        if not name.endswith("num_batches_tracked")
    }
    groups = {"params": params, "statistics": statistics, **moments}
    return {
        group: {name: to_host(tensor) for name, tensor in of.items()}
        for group, of in groups.items()
    }


def _make_training(
    placed: _Placed,
    learn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    trained: list[torch.Tensor],
    reset: Callable[[], None],
) -> Training:
    forward, device = compile_function(placed.forward, placed.wanted.compile), placed.device
    last = placed.layout is torch.channels_last
    prepare = batches.make_prepare(device, placed.dtype)

    def validate(batch: batches.Batch) -> torch.Tensor:
        pixels, labels = prepare(batch)
        placed.model.eval()
        with torch.no_grad():
            correct = (forward(pixels).argmax(dim=1) == labels).sum()
        placed.model.train()
        return correct

    def read_batch(batch: batches.Batch) -> dict[str, np.ndarray]:
        pixels, labels = prepare(batch)
        return make_seen(to_host(pixels), labels.cpu().numpy())

    return Training(
        layout="NHWC" if last else "NCHW",
        stage=batches.make_stage(device, channels_last=last),
        send=batches.make_send(device),
        learn=lambda batch: learn(*prepare(batch)).clone(),  # a graph's next replay overwrites it
        validate=validate,
        read_batch=read_batch,
        pending=lambda: trained,
        reset=reset,
    )


def _list_drop_rates(placed: _Placed, images: torch.Tensor) -> list[float]:
    """Rates of every dropout and stochastic depth that a forward pass calls: torchvision also makes
    some that it never calls."""
    rates: list[float] = []
    droppers = [each for each in placed.model.modules() if getattr(each, "p", 0.0) > 0.0]
    handles = [
        each.register_forward_hook(lambda module, *_: rates.append(module.p)) for each in droppers
    ]
    _output_dtype(placed, images)
    for handle in handles:
        handle.remove()
    return rates


def _output_dtype(placed: _Placed, images: torch.Tensor) -> torch.dtype:
    """Dtype of the forward pass, which is run as in inference: it leaves the statistics alone."""
    placed.model.eval()
    with torch.no_grad():
        dtype = placed.forward(images).dtype
    placed.model.train()
    return dtype


def _copy_into(targets: Mapping[str, torch.Tensor], sources: Tensors) -> None:
    """In place: the compiled function and the optimiser keep hold of the very same tensors."""
    with torch.no_grad():
        for name, source in sources.items():
            targets[name].copy_(source)


def _state_dict(model: torch.nn.Module, params: Mapping[str, np.ndarray]) -> Tensors:
    """The canonical arrays, plus the counters that they leave out."""
    counters = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name.endswith("num_batches_tracked")
    }
    return counters | {name: torch.tensor(array) for name, array in params.items()}


def import_models() -> ModuleType:
    """`torchvision.models`, even where torchvision was built for another torch.

    torchvision then doesn't find its compiled operators (pytorch/vision#9085), and its import fails
    at the first one it looks up. Classifiers need none of them: declaring the two names that are
    looked up lets the import succeed.
    """
    try:
        from torchvision import models
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
        _declare_operators()
        from torchvision import models
    return models


_declared: list[torch.library.Library] = []
"""A declaration lasts as long as its library object."""


def _declare_operators() -> None:
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)

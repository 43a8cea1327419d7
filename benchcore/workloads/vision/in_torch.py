"""Inference and training of torchvision's own models in PyTorch.

With any compile mode but `none`, the forward pass and the loss are compiled, and by AOTAutograd
the backward pass too. The optimizer step is PyTorch's own multi-tensor one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from benchcore.program import REFERENCE, Arrays, Program, Settings, Training
from benchcore.workloads.settings import (
    TORCH_COMPILE,
    BuildSettings,
    read_settings,
)
from benchcore.workloads.vision.batches import in_torch as batches
from benchcore.workloads.vision.case import (
    ADAMW_BETAS,
    ADAMW_EPSILON,
    LABEL_SMOOTHING,
    MOMENTUM,
    SETTINGS,
    Case,
    Steps,
    make_evidence,
    make_parts,
)
from benchcore.workloads.vision.pixels import make_seen

Tensors = dict[str, torch.Tensor]
Forward = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """A model and its images on the device, in the case's dtype and the settings' layout."""

    model: torch.nn.Module
    forward: Forward
    images: torch.Tensor
    mode: str
    defects: frozenset[str]

    def hold(self) -> dict[str, object]:
        """What the manifest reads of both inference and training."""
        return {
            "module": self.model,
            "params": list(self.model.parameters()),
            "inputs": [self.images],
            "compile_mode": self.mode,
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
    return _train(case, arrays, placed)


def _place(case: Case, arrays: Arrays, wanted: BuildSettings, model: torch.nn.Module) -> _Placed:
    last = wanted.layout == "channels_last"
    memory_format = torch.channels_last if last else torch.contiguous_format
    dtypes = {"bf16": torch.bfloat16, REFERENCE: torch.float64}
    dtype = dtypes.get(case.precision, torch.float32)
    model.load_state_dict(_state_dict(model, arrays.params), strict=True)
    model = model.train(case.use_case == "train")
    model = model.to(wanted.device, dtype, memory_format=memory_format)
    images = torch.tensor(arrays.inputs["images"], device=wanted.device, dtype=dtype)

    def autocast(images: torch.Tensor) -> torch.Tensor:
        with torch.autocast(wanted.platform, torch.bfloat16):
            return model(images)

    return _Placed(
        model=model,
        forward=autocast if case.precision == "bf16_autocast" else model,
        images=images.contiguous(memory_format=memory_format),
        mode=wanted.compile,
        defects=wanted.defects,
    )


def _compile(function: Callable[..., torch.Tensor], mode: str) -> Callable[..., torch.Tensor]:
    return function if mode == "none" else torch.compile(function, mode=mode, fullgraph=True)


def _infer(placed: _Placed) -> Program:
    compiled = _compile(placed.forward, placed.mode)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            return compiled(placed.images)

    return Program(
        step=step,
        evidence=lambda: {"logits": _to_host(step())},
        held=lambda: placed.hold() | {"output_dtype": step().dtype},
        parts=lambda: make_parts(_name_layers(placed)),
    )


def _name_layers(placed: _Placed) -> dict[str, np.ndarray]:
    """The output of every module that has parameters of its own, in forward order."""
    found: dict[str, np.ndarray] = {}

    def hook(name: str) -> Callable[..., None]:
        def keep(_module: torch.nn.Module, _given: Any, output: Any) -> None:
            attention = isinstance(output, tuple)  # its output and its weights
            found[name] = _to_host(output[0] if attention else output)

        return keep

    handles = [
        module.register_forward_hook(hook(name))
        for name, module in placed.model.named_modules()
        if name and any(True for _ in module.parameters(recurse=False))
    ]
    with torch.no_grad():
        placed.forward(placed.images)
    for handle in handles:
        handle.remove()
    return found


def _make_optimizer(
    case: Case, params: Mapping[str, torch.nn.Parameter]
) -> tuple[torch.optim.Optimizer, Tensors]:
    """torch's optimizer and its state tensors, zero so that step 1 is well-defined.

    They are created here because the evidence resets them to zero."""
    remembered: Tensors = {}

    def remember(param: torch.nn.Parameter, key: str, tensor: torch.Tensor) -> None:
        optimizer.state[param][key] = tensor
        remembered[f"{key} {len(remembered)}"] = tensor

    decay = {"lr": case.learning_rate, "weight_decay": case.weight_decay}
    if case.optimizer == "sgd":
        optimizer = torch.optim.SGD(params.values(), momentum=MOMENTUM, **decay)
        for param in params.values():
            remember(param, "momentum_buffer", torch.zeros_like(param))
        return optimizer, remembered
    optimizer = torch.optim.AdamW(params.values(), betas=ADAMW_BETAS, eps=ADAMW_EPSILON, **decay)
    for param in params.values():
        remember(param, "step", torch.tensor(0.0))
        remember(param, "exp_avg", torch.zeros_like(param))
        remember(param, "exp_avg_sq", torch.zeros_like(param))
    return optimizer, remembered


def _train(case: Case, arrays: Arrays, placed: _Placed) -> Program:
    model, images = placed.model, placed.images
    labels = torch.tensor(arrays.inputs["labels"], device=images.device).long()
    params = dict(model.named_parameters())
    if "frozen-weights" in placed.defects:
        model.requires_grad_(False)
        images.requires_grad_()
    optimizer, remembered = _make_optimizer(case, params)
    state = {name: tensor for name, tensor in model.state_dict().items() if name in arrays.params}

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = _widen(placed.forward(images))
        return torch.nn.functional.cross_entropy(logits, labels, label_smoothing=LABEL_SMOOTHING)

    loss_function = _compile(loss_of, placed.mode)
    owed = list(params.values())
    address = owed[-1].data_ptr()

    def learn(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(images, labels)
        loss.backward()
        optimizer.step()
        if "loss-fetched" in placed.defects:
            loss.item()
        return loss.detach()

    def step() -> tuple[torch.Tensor, list[torch.Tensor]]:
        return learn(images, labels), owed

    def reset() -> None:
        _copy_into(state, {name: torch.tensor(arrays.params[name]) for name in state})
        _copy_into(remembered, {name: torch.zeros(()) for name in remembered})

    def follow(num_steps: int) -> Steps:
        kept = {name: tensor.clone() for name, tensor in (state | remembered).items()}
        reset()
        with _without_noise(model):
            losses = [step()[0].item()]
            gradient = {name: _gradient(param) for name, param in params.items()}
            first = {name: _to_host(tensor) for name, tensor in state.items()}
            losses += [step()[0].item() for _ in range(num_steps - 1)]
        last = {name: _to_host(tensor) for name, tensor in state.items()}
        _copy_into(state | remembered, kept)
        return Steps(
            before=arrays.params,
            gradient=gradient,
            after_first=first,
            after_last=last,
            losses=losses,
        )

    def parts() -> dict[str, np.ndarray]:
        """Call it before the program's first step."""
        with _without_noise(model):
            layers = _name_layers(placed)
        return make_parts(layers, follow(1))

    def held() -> dict[str, object]:
        return placed.hold() | {
            "inputs": [images, labels],
            "output_dtype": _output_dtype(placed),
            "state_update": "in place" if owed[-1].data_ptr() == address else "copied",
        }

    return Program(
        step=step,
        evidence=lambda: make_evidence(case, follow(case.trace_steps)),
        held=held,
        parts=parts,
        training=lambda: _make_training(placed, learn, owed, reset),
    )


def _make_training(
    placed: _Placed,
    learn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    owed: list[torch.Tensor],
    reset: Callable[[], None],
) -> Training:
    images, forward = placed.images, _compile(placed.forward, placed.mode)
    last = not images.is_contiguous()
    prepare = batches.make_prepare(images.device, images.dtype)

    def validate(batch: batches.Batch) -> torch.Tensor:
        pixels, labels = prepare(batch)
        placed.model.eval()
        with torch.no_grad():
            correct = (forward(pixels).argmax(dim=1) == labels).sum()
        placed.model.train()
        return correct

    def see(batch: batches.Batch) -> dict[str, np.ndarray]:
        pixels, labels = prepare(batch)
        return make_seen(_to_host(pixels), labels.cpu().numpy())

    return Training(
        layout="NHWC" if last else "NCHW",
        stage=batches.make_stage(images.device, channels_last=last),
        send=batches.make_send(images.device),
        learn=lambda batch: learn(*prepare(batch)),
        validate=validate,
        see=see,
        owed=lambda: owed,
        reset=reset,
    )


@contextmanager
def _without_noise(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout and stochastic depth: no two frameworks draw the same random numbers."""
    rates = {module: module.p for module in model.modules() if hasattr(module, "p")}
    for module in rates:
        module.p = 0.0
    yield
    for module, rate in rates.items():
        module.p = rate


def _output_dtype(placed: _Placed) -> torch.dtype:
    """Of a forward pass in inference mode, which leaves the statistics unchanged."""
    placed.model.eval()
    with torch.no_grad():
        dtype = placed.forward(placed.images).dtype
    placed.model.train()
    return dtype


def _copy_into(targets: Tensors, sources: Tensors) -> None:
    """In place: the compiled function and the optimizer hold references to these tensors."""
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(sources[name])


def _gradient(param: torch.nn.Parameter) -> np.ndarray:
    """Zeros if there is none, so that this side fails every comparison."""
    return _to_host(torch.zeros_like(param) if param.grad is None else param.grad)


def _to_host(tensor: torch.Tensor) -> np.ndarray:
    """A copy in at least float32: numpy has no bfloat16."""
    return _widen(tensor.detach()).cpu().numpy().copy()


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    """bfloat16 becomes float32, which is exact; float64 stays."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


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

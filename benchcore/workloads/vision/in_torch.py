"""torchvision's own models in PyTorch: inference and training of whichever a workload names.

With compile other than `none`, the forward pass and the loss are compiled (and, by AOTAutograd,
the backward pass with them); the optimiser's step stays PyTorch's own multi-tensor one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.settings import (
    TORCH_COMPILE,
    BuildSettings,
    read_settings,
)
from benchcore.workloads.vision.case import (
    LABEL_SMOOTHING,
    MOMENTUM,
    SETTINGS,
    TRACE_STEPS,
    Case,
    Steps,
    make_evidence,
)

Tensors = dict[str, torch.Tensor]
Forward = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """A model and its images on the device, in the case's dtype and the settings' layout."""

    model: torch.nn.Module
    forward: Forward
    images: torch.Tensor
    mode: str

    def hold(self) -> dict[str, object]:
        """What the manifest reads of inference and training alike."""
        return {
            "module": self.model,
            "params": list(self.model.parameters()),
            "inputs": [self.images],
            "compile_mode": self.mode,
        }


def build(case: Case, arrays: Arrays, settings: Settings, *, constructor: str) -> Program:
    """Set `torchvision.models.<constructor>` up on the device that the settings name."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    placed = _place(case, arrays, wanted, constructor)
    if case.use_case == "infer":
        return _infer(placed)
    return _train(case, arrays, placed)


def _place(case: Case, arrays: Arrays, wanted: BuildSettings, constructor: str) -> _Placed:
    last = wanted.layout == "channels_last"
    memory_format = torch.channels_last if last else torch.contiguous_format
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    model = getattr(import_models(), constructor)(weights=None)
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
    )


def _train(case: Case, arrays: Arrays, placed: _Placed) -> Program:
    model, images = placed.model, placed.images
    labels = torch.tensor(arrays.inputs["labels"], device=images.device).long()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=case.learning_rate, momentum=MOMENTUM, weight_decay=case.weight_decay
    )
    params = dict(model.named_parameters())
    momentum = {f"momentum of {name}": torch.zeros_like(param) for name, param in params.items()}
    for param, buffer in zip(params.values(), momentum.values(), strict=True):
        optimizer.state[param]["momentum_buffer"] = buffer  # from zeros step one is as SGD has it
    state = {name: tensor for name, tensor in model.state_dict().items() if name in arrays.params}

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = placed.forward(images).float()
        return torch.nn.functional.cross_entropy(logits, labels, label_smoothing=LABEL_SMOOTHING)

    loss_function = _compile(loss_of, placed.mode)
    owed = list(params.values())
    address = owed[-1].data_ptr()

    def step() -> tuple[torch.Tensor, list[torch.Tensor]]:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(images, labels)
        loss.backward()
        optimizer.step()
        return loss.detach(), owed

    def evidence() -> dict[str, np.ndarray]:
        kept = {name: tensor.clone() for name, tensor in (state | momentum).items()}
        _copy_into(state, {name: torch.tensor(arrays.params[name]) for name in state})
        _copy_into(momentum, {name: torch.zeros(()) for name in momentum})
        with _without_noise(model):
            losses = [step()[0].item()]
            gradient = {name: _to_host(param.grad) for name, param in params.items()}
            first = {name: _to_host(tensor) for name, tensor in state.items()}
            losses += [step()[0].item() for _ in range(TRACE_STEPS - 1)]
        last = {name: _to_host(tensor) for name, tensor in state.items()}
        _copy_into(state | momentum, kept)
        steps = Steps(
            before=arrays.params,
            gradient=gradient,
            after_first=first,
            after_last=last,
            losses=losses,
        )
        return make_evidence(case, steps)

    def held() -> dict[str, object]:
        return placed.hold() | {
            "inputs": [images, labels],
            "output_dtype": _output_dtype(placed),
            "state_update": "in place" if owed[-1].data_ptr() == address else "copied",
        }

    return Program(step=step, evidence=evidence, held=held)


@contextmanager
def _without_noise(model: torch.nn.Module) -> Iterator[None]:
    """Dropout and stochastic depth off: no two frameworks draw the same numbers."""
    rates = {module: module.p for module in model.modules() if hasattr(module, "p")}
    for module in rates:
        module.p = 0.0
    yield
    for module, rate in rates.items():
        module.p = rate


def _output_dtype(placed: _Placed) -> torch.dtype:
    """Of the forward pass, which is run as in inference: it leaves the statistics alone."""
    placed.model.eval()
    with torch.no_grad():
        dtype = placed.forward(placed.images).dtype
    placed.model.train()
    return dtype


def _copy_into(targets: Tensors, sources: Tensors) -> None:
    """In place: the compiled function and the optimiser keep hold of the very same tensors."""
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(sources[name])


def _to_host(tensor: torch.Tensor) -> np.ndarray:
    """A float32 copy: numpy has no bfloat16, and every bfloat16 is a float32."""
    return tensor.detach().float().cpu().numpy().copy()


def _state_dict(model: torch.nn.Module, params: Mapping[str, np.ndarray]) -> Tensors:
    """The canonical arrays, and the counters they leave out."""
    counters = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name.endswith("num_batches_tracked")
    }
    return counters | {name: torch.tensor(array) for name, array in params.items()}


def import_models() -> ModuleType:
    """`torchvision.models`, also where torchvision and torch were built apart.

    Beside a torch of another build (pytorch/vision#9085) torchvision finds its own operators
    missing and its import fails at the first one it looks up. Classifiers need none of them:
    naming the two that are looked up lets the import go through.
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

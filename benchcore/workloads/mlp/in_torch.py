"""The multi-layer perceptron in PyTorch: `nn.Sequential` and `torch.optim.SGD`.

With any compile mode but `none`, the forward pass and the loss are compiled, and by AOTAutograd
the backward pass too. The optimizer step is PyTorch's own multi-tensor one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn

from benchcore.program import REFERENCE, Arrays, Program, Settings
from benchcore.workloads.mlp.spec import (
    INPUT_BUFFERS,
    LEARNING_RATE,
    MOMENTUM,
    SETTINGS,
    TRACE_STEPS,
    Case,
    flatten,
    name_parts,
    tolerances,
)
from benchcore.workloads.rotation import Rotation, roll
from benchcore.workloads.settings import TORCH_COMPILE, read_settings

Tensors = dict[str, torch.Tensor]


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the perceptron on the device in the settings."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    dtypes = {"bf16": torch.bfloat16, REFERENCE: torch.float64}
    dtype = dtypes.get(case.precision, torch.float32)
    rotation = Rotation(
        [_place_inputs(each, wanted.device, dtype) for each in roll(arrays.inputs, INPUT_BUFFERS)]
    )
    model = _make_model(case).to(wanted.device, dtype)
    model.load_state_dict(_place(arrays.params, wanted.device), strict=True)
    forward = _forward(case, model, wanted.platform)
    if case.use_case == "infer":
        return _infer(model.eval(), forward, rotation, wanted.compile)
    return _train(case, model.train(), forward, rotation, arrays.params, wanted.compile)


def _place(arrays: Mapping[str, np.ndarray], device: str) -> Tensors:
    """Copies on the device; on the CPU `torch.from_numpy` would train the originals."""
    return {name: torch.tensor(array, device=device) for name, array in arrays.items()}


def _place_inputs(
    inputs: Mapping[str, np.ndarray], device: str, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Images, and in training labels in the dtype of torch's loss."""
    placed = _place(inputs, device)
    return tuple(
        placed[name].to(dtype) if name == "images" else placed[name].long() for name in inputs
    )


def _make_model(case: Case) -> nn.Sequential:
    """Its state_dict has the canonical names: `fc0.weight`, `fc0.bias`, ..."""
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    for name, inputs, outputs in case.layers:
        modules[name] = nn.Linear(inputs, outputs)
        modules[f"relu_{name}"] = nn.ReLU()
    modules.popitem()  # the logits have no ReLU
    return nn.Sequential(modules)


def _forward(case: Case, model: nn.Module, platform: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Under `bf16_autocast` torch casts the operands of each operation; parameters stay float32."""
    if case.precision != "bf16_autocast":
        return model

    def forward(images: torch.Tensor) -> torch.Tensor:
        with torch.autocast(platform, torch.bfloat16):
            return model(images)

    return forward


def _compile(function: Callable[..., torch.Tensor], mode: str) -> Callable[..., torch.Tensor]:
    return function if mode == "none" else torch.compile(function, mode=mode, fullgraph=True)


def _infer(
    model: nn.Module,
    forward: Callable[[torch.Tensor], torch.Tensor],
    rotation: Rotation[tuple[torch.Tensor, ...]],
    mode: str,
) -> Program:
    compiled = _compile(forward, mode)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            return compiled(*rotation.take())

    def evidence() -> dict[str, np.ndarray]:
        with torch.inference_mode():
            return {"logits": _to_host(compiled(*rotation.buffers[0]))}

    def held() -> dict[str, object]:
        return _held(model, rotation, mode) | {"output_dtype": step().dtype}

    return Program(
        step=step,
        evidence=evidence,
        held=held,
        parts=lambda: _name_layers(model, forward, *rotation.buffers[0]),
    )


def _name_layers(
    model: nn.Module, forward: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor
) -> dict[str, np.ndarray]:
    """The output of every `nn.Linear`."""
    found: dict[str, np.ndarray] = {}

    def hook(name: str) -> Callable[..., None]:
        return lambda _module, _inputs, output: found.update({name: _to_host(output)})

    handles = [
        each.register_forward_hook(hook(name))
        for name, each in model.named_modules()
        if isinstance(each, nn.Linear)
    ]
    with torch.no_grad():
        forward(images)
    for handle in handles:
        handle.remove()
    return name_parts("layer", found)


def _held(
    model: nn.Module, rotation: Rotation[tuple[torch.Tensor, ...]], mode: str
) -> dict[str, object]:
    return {
        "module": model,
        "params": list(model.parameters()),
        "inputs": rotation.buffers[0],
        "rotation": rotation,
        "compile_mode": mode,
    }


def _train(
    case: Case,
    model: nn.Module,
    forward: Callable[[torch.Tensor], torch.Tensor],
    rotation: Rotation[tuple[torch.Tensor, ...]],
    initial: Mapping[str, np.ndarray],
    mode: str,
) -> Program:
    images, labels = rotation.buffers[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    params = dict(model.named_parameters())
    momentum = {name: torch.zeros_like(param) for name, param in params.items()}
    for name, param in params.items():  # zeros: step 1 is then the one that SGD defines
        optimizer.state[param]["momentum_buffer"] = momentum[name]

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(_widen(forward(images)), labels)

    loss_function = _compile(loss_of, mode)
    owed = list(params.values())
    address = owed[-1].data_ptr()

    def advance(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(images, labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def step() -> tuple[torch.Tensor, list[torch.Tensor]]:
        return advance(*rotation.take()), owed

    def evidence() -> dict[str, np.ndarray]:
        kept = _clone(params), _clone(momentum)
        _copy_into(params, _place(initial, images.device))
        _copy_into(momentum, {name: torch.zeros_like(kept[1][name]) for name in momentum})
        losses = []
        first: dict[str, np.ndarray] = {}
        for _ in range(TRACE_STEPS):
            losses.append(_to_host(advance(images, labels)))
            first = first or _first_step(initial, params, momentum)
        _copy_into(params, kept[0])
        _copy_into(momentum, kept[1])
        found = {**first, "loss_trace": np.array(losses)}
        return {name: found[name] for name in tolerances(case)}

    def held() -> dict[str, object]:
        with torch.no_grad():
            logits = forward(images)
        return _held(model, rotation, mode) | {
            "output_dtype": logits.dtype,
            "state_update": "in place" if owed[-1].data_ptr() == address else "copied",
        }

    def parts() -> dict[str, np.ndarray]:
        """Call it before the program's first step."""
        layers = _name_layers(model, forward, images)
        optimizer.zero_grad(set_to_none=True)
        loss_of(images, labels).backward()
        gradient = {name: _to_host(param.grad) for name, param in params.items()}
        return layers | name_parts("gradient", gradient)

    return Program(step=step, evidence=evidence, held=held, parts=parts)


def _first_step(
    before: Mapping[str, np.ndarray], params: Tensors, momentum: Tensors
) -> dict[str, np.ndarray]:
    """Gradient and update of step 1. Momentum starts at zero and then equals the gradient."""
    update = {name: _to_host(params[name]) - before[name] for name in before}
    gradient = {name: _to_host(momentum[name]) for name in before}
    return {"gradient": flatten(gradient, before), "update": flatten(update, before)}


def _clone(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _copy_into(targets: Tensors, sources: Tensors) -> None:
    """In place: the compiled function and the optimizer hold references to these tensors."""
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(sources[name])


def _to_host(tensor: torch.Tensor) -> np.ndarray:
    """A copy in at least float32: numpy has no bfloat16."""
    return _widen(tensor.detach()).cpu().numpy().copy()


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    """bfloat16 becomes float32, which is exact; float64 stays."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))

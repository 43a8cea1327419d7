"""The multi-layer perceptron in PyTorch: `nn.Sequential`, or functions, and `torch.optim.SGD`.

With any compile mode but `none`, the forward pass and the loss are compiled, and by AOTAutograd
the backward pass too. The optimizer step is PyTorch's own, compiled only if the settings choose it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn

from benchcore.program import REFERENCE, Arrays, Program, Settings
from benchcore.workloads.mlp.spec import (
    LEARNING_RATE,
    MOMENTUM,
    SETTINGS,
    Case,
)
from benchcore.workloads.settings import TORCH_COMPILE, BuildSettings, read_settings
from benchcore.workloads.tensors.in_torch import compile_function, to_host, widen

Tensors = dict[str, torch.Tensor]
Inputs = tuple[torch.Tensor, ...]
Place = Callable[[Mapping[str, np.ndarray]], Inputs]
Forward = Callable[[torch.Tensor], torch.Tensor]


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the perceptron on the device in the settings."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    dtypes = {"bf16": torch.bfloat16, REFERENCE: torch.float64}
    dtype = dtypes.get(case.precision, torch.float32)
    model = _make_model(case).to(wanted.device, dtype)
    model.load_state_dict(_place(arrays.params, wanted.device), strict=True)
    forward = _forward(case, model, wanted.platform)

    def place(inputs: Mapping[str, np.ndarray]) -> Inputs:
        return _place_inputs(inputs, wanted.device, dtype)

    if wanted.model == "functions":
        forward = _forward(case, _as_functions(case, model), wanted.platform)
    if case.use_case == "infer":
        return _infer(model.eval(), forward, place, wanted.compile)
    return _train(model.train(), forward, place, wanted)


def _place(arrays: Mapping[str, np.ndarray], device: str) -> Tensors:
    """Copies on the device; on the CPU `torch.from_numpy` would train the originals."""
    return {name: torch.tensor(array, device=device) for name, array in arrays.items()}


def _place_inputs(inputs: Mapping[str, np.ndarray], device: str, dtype: torch.dtype) -> Inputs:
    """Images, and labels (as torch's loss wants them) where there are any."""
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


def _as_functions(case: Case, model: nn.Module) -> Forward:
    """The same layers as calls of functions with the model's parameters."""
    params = dict(model.named_parameters())
    layers = [(params[f"{name}.weight"], params[f"{name}.bias"]) for name, _, _ in case.layers]

    def forward(images: torch.Tensor) -> torch.Tensor:
        value = images
        for index, (weight, bias) in enumerate(layers):
            value = nn.functional.relu(value) if index else value
            value = nn.functional.linear(value, weight, bias)
        return value

    return forward


def _forward(case: Case, model: Forward, platform: str) -> Forward:
    """Under `bf16_autocast` torch casts the operands of each operation; parameters stay float32."""
    if case.precision != "bf16_autocast":
        return model

    def forward(images: torch.Tensor) -> torch.Tensor:
        with torch.autocast(platform, torch.bfloat16):
            return model(images)

    return forward


def _infer(
    model: nn.Module,
    forward: Forward,
    place: Place,
    mode: str,
) -> Program:
    compiled = compile_function(forward, mode)
    params = dict(model.named_parameters())

    def step(inputs: Inputs) -> torch.Tensor:
        with torch.inference_mode():
            return compiled(*inputs)

    return Program(
        place=place,
        step=step,
        reset=lambda given: _copy_into(params, _place(given, "cpu")),
        read=lambda logits: {"logits": to_host(logits)},
        held=lambda inputs: _held(model, inputs, mode) | {"output_dtype": step(inputs).dtype},
        layers=lambda inputs: _name_layers(model, forward, *inputs),
    )


def _name_layers(model: nn.Module, forward: Forward, images: torch.Tensor) -> dict[str, np.ndarray]:
    """The output of every `nn.Linear`."""
    found: dict[str, np.ndarray] = {}

    def hook(name: str) -> Callable[..., None]:
        return lambda _module, _inputs, output: found.update({name: to_host(output)})

    handles = [
        each.register_forward_hook(hook(name))
        for name, each in model.named_modules()
        if isinstance(each, nn.Linear)
    ]
    with torch.no_grad():
        forward(images)
    for handle in handles:
        handle.remove()
    return found


def _held(model: nn.Module, inputs: Inputs, mode: str) -> dict[str, object]:
    return {
        "module": model,
        "params": list(model.parameters()),
        "inputs": inputs,
        "compile_mode": mode,
    }


def _train(
    model: nn.Module,
    forward: Forward,
    place: Place,
    wanted: BuildSettings,
) -> Program:
    optimizer = torch.optim.SGD(
        model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, **wanted.optimizer_choice
    )
    update = torch.compile(optimizer.step) if wanted.optimizer == "compiled" else optimizer.step
    params = dict(model.named_parameters())
    momentum = {name: torch.zeros_like(param) for name, param in params.items()}
    for name, param in params.items():  # zeros: step 1 is then the one that SGD defines
        optimizer.state[param]["momentum_buffer"] = momentum[name]

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(widen(forward(images)), labels)

    loss_function = compile_function(loss_of, wanted.compile)
    trained = list(params.values())
    address = trained[-1].data_ptr()

    def step(inputs: Inputs) -> tuple[torch.Tensor, list[nn.Parameter]]:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(*inputs)
        loss.backward()
        update()
        return loss.detach(), trained

    def reset(given: Mapping[str, np.ndarray]) -> None:
        _copy_into(params, _place(given, "cpu"))
        _copy_into(momentum, {name: torch.zeros(()) for name in momentum})

    def held(inputs: Inputs) -> dict[str, object]:
        with torch.no_grad():
            logits = forward(inputs[0])
        return _held(model, inputs, wanted.compile) | {
            "output_dtype": logits.dtype,
            "state_update": "in place" if trained[-1].data_ptr() == address else "copied",
        }

    return Program(
        place=place,
        step=step,
        reset=reset,
        read=lambda outputs: {"loss": to_host(outputs[0])},
        state=lambda: {
            "params": {name: to_host(param) for name, param in params.items()},
            "momentum": {name: to_host(tensor) for name, tensor in momentum.items()},
        },
        held=held,
        layers=lambda inputs: _name_layers(model, forward, inputs[0]),
    )


def _copy_into(targets: Mapping[str, torch.Tensor], sources: Tensors) -> None:
    """In place: the compiled function and the optimiser keep hold of the very same tensors."""
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(sources[name])

"""Inference, training and per-sample gradients in PyTorch, for a network that is a module.

With any compile mode but `none`, the forward pass and the loss are compiled, and by AOTAutograd
the backward pass too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import distributed, nn

from benchcore.program import REFERENCE, Arrays, ByName, Program, Training
from benchcore.workloads.networks.case import LEARNING_RATE, MOMENTUM, Case, check_strategy
from benchcore.workloads.networks.per_sample.in_torch import make_per_sample
from benchcore.workloads.settings import BuildSettings
from benchcore.workloads.tensors.in_torch import compile_function, to_host
from benchcore.workloads.vision.batches import in_torch as batches
from benchcore.workloads.vision.pixels import make_inputs_seen, make_seen

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class _Placed:
    module: nn.Module
    dtype: torch.dtype
    layout: torch.memory_format
    devices: int
    labelled: bool
    wanted: BuildSettings

    def place(self, inputs: ByName) -> Inputs:
        """This process's part: indices as int64, images in the layout."""
        return tuple(self._place_one(self._take_part(array)) for array in inputs.values())

    def _take_part(self, array: np.ndarray) -> np.ndarray:
        if self.devices == 1 or self.wanted.strategy == "tensor":
            return array
        size = len(array) // self.devices
        return array[distributed.get_rank() * size :][:size]

    def _place_one(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.tensor(array, device=next(self.module.parameters()).device)
        tensor = self.cast(tensor)
        return tensor.contiguous(memory_format=self.layout) if tensor.dim() == 4 else tensor

    def cast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Indices as int64, others in the case's dtype."""
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor.long()

    def reset(self, params: ByName) -> None:
        """In place: the compiled function and the optimiser keep hold of the very same tensors."""
        state = self.module.state_dict()
        with torch.no_grad():
            for name, array in params.items():
                own = torch.tensor(self._arrange("group", name, array))
                state[name].copy_(_share_out(own, state[name]))

    def read(self, name: str, tensor: torch.Tensor) -> np.ndarray:
        """A parameter or its momentum on the host, in canonical order."""
        return self._arrange("ungroup", name, to_host(tensor))

    def _arrange(self, how: str, name: str, array: np.ndarray) -> np.ndarray:
        """A parameter as the module needs it where each device has some of its features, or
        back."""
        if self.wanted.strategy != "tensor":
            return array
        return getattr(self.module, how)(name, array, self.devices)

    def hold(self, inputs: Inputs) -> dict[str, object]:
        """What the manifest reads of every use case. Runs the module as in inference."""
        trains = self.module.training
        self.module.eval()
        with torch.no_grad():
            dtype = self.module(*(inputs[:-1] if self.labelled else inputs)).dtype
        self.module.train(trains)
        return {
            "output_dtype": dtype,
            "module": self.module,
            "params": list(self.module.parameters()),
            "state": [*self.module.parameters(), *self.module.buffers()],
            "inputs": inputs,
            "compile_mode": self.wanted.compile,
        }

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function compiled by torch, unless `compile` is `none`."""
        whole = self.devices == 1  # DistributedDataParallel's hooks can't be compiled
        return compile_function(function, self.wanted.compile, whole=whole)


def build(case: Case, arrays: Arrays, wanted: BuildSettings, module: nn.Module) -> Program:
    """Set up the module, whose `state_dict` has the canonical names, on the settings' device."""
    layout = torch.channels_last if wanted.layout == "channels_last" else torch.contiguous_format
    dtype = torch.float64 if case.precision == REFERENCE else torch.float32
    check_names(module, arrays.params)
    device = _find_device(case, wanted)
    placed = _Placed(
        module=module.to(device, dtype, memory_format=layout).train(case.use_case == "train"),
        dtype=dtype,
        layout=layout,
        devices=case.devices,
        labelled=case.use_case != "infer",
        wanted=wanted,
    )
    placed.reset(arrays.params)
    check_strategy(case, wanted.strategy)
    if wanted.strategy == "fully_sharded":
        _shard(placed.module)
    if wanted.strategy == "tensor":
        _split(placed.module, device.type, case.devices)
    if case.use_case == "train":
        return _train(placed, arrays)
    if case.use_case == "infer":
        compiled = placed.compile(placed.module)
        return _without_state(
            placed, torch.inference_mode, lambda inputs: {"logits": compiled(*inputs)}
        )
    step = make_per_sample(case, wanted, placed.module, compute_loss, placed.compile)
    return _without_state(placed, torch.enable_grad, step)


def _find_device(case: Case, wanted: BuildSettings) -> torch.device:
    """This process's device: on several devices each process has one, by its place in the group."""
    if case.devices == 1:
        return torch.device(wanted.device)
    if not distributed.is_initialized() or distributed.get_world_size() != case.devices:
        raise ValueError(
            f"wanted a group of {case.devices} processes; let the cell start the contender"
        )
    if wanted.platform == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", wanted.ordinal + distributed.get_rank())


def check_names(module: nn.Module, params: ByName) -> None:
    """Raises ValueError unless arrays and the module's tensors correspond one to one."""
    own = {name: tuple(each.shape) for name, each in module.state_dict().items()}
    own = {name: shape for name, shape in own.items() if not name.endswith("num_batches_tracked")}
    came = {name: array.shape for name, array in params.items()}
    if own != came:
        wrong = sorted(name for name in own | came if own.get(name) != came.get(name))
        raise ValueError(
            f"wanted the arrays of {type(module).__name__}, got others: {', '.join(wrong)[:500]}; "
            "correct `shapes` in the spec, or the module"
        )


def compute_loss(forward: Callable[..., torch.Tensor], inputs: Inputs) -> torch.Tensor:
    """The mean cross-entropy of all labels."""
    logits = forward(*inputs[:-1])
    return nn.functional.cross_entropy(logits.flatten(0, -2), inputs[-1].flatten())


Outputs = Mapping[str, Any]


def _without_state(
    placed: _Placed, mode: Callable[[], Any], function: Callable[[Inputs], Outputs]
) -> Program:
    def step(inputs: Inputs) -> Outputs:
        with mode():
            return function(inputs)

    def read(outputs: Outputs) -> dict[str, np.ndarray]:
        """Gradients by parameter in one vector, in canonical order."""
        return {
            name: np.concatenate([to_host(part).ravel() for part in each.values()])
            if isinstance(each, Mapping)
            else to_host(each)
            for name, each in outputs.items()
        }

    return Program(
        place=placed.place,
        step=step,
        reset=placed.reset,
        read=read,
        held=placed.hold,
    )


def _train(placed: _Placed, arrays: Arrays) -> Program:
    module, wanted = placed.module, placed.wanted
    params = dict(module.named_parameters())
    momentum = {name: torch.zeros_like(param) for name, param in params.items()}
    optimizer = torch.optim.SGD(
        params.values(), lr=LEARNING_RATE, momentum=MOMENTUM, **wanted.optimizer_choice
    )
    for name, param in params.items():  # zeros: step 1 is then the one that SGD defines
        optimizer.state[param]["momentum_buffer"] = momentum[name]
    update = torch.compile(optimizer.step) if wanted.optimizer == "compiled" else optimizer.step
    forward = _spread(placed)
    loss_function = placed.compile(lambda *inputs: compute_loss(forward, inputs))
    trained = list(params.values())
    address = _find_address(trained[-1])

    def step(inputs: Inputs) -> tuple[torch.Tensor, list[nn.Parameter]]:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(*inputs)
        loss.backward()
        update()
        loss = loss.detach()
        if placed.devices > 1 and wanted.strategy != "tensor":
            distributed.all_reduce(loss)
            loss /= placed.devices
        return loss, trained

    def reset(given: ByName) -> None:
        placed.reset(given)
        for each in momentum.values():
            each.zero_()

    def held(inputs: Inputs) -> dict[str, object]:
        updated = "in place" if _find_address(trained[-1]) == address else "copied"
        state = [
            *trained,
            *module.buffers(),
            *momentum.values(),
        ]  # `trained` are this process's parts
        return placed.hold(inputs) | {"state_update": updated, "state": state}

    return Program(
        place=placed.place,
        step=step,
        reset=reset,
        read=lambda outputs: {"loss": to_host(outputs[0])},
        state=lambda: {
            "params": {name: placed.read(name, param) for name, param in params.items()},
            "statistics": {
                name: to_host(each)
                for name, each in module.named_buffers()
                if not name.endswith("num_batches_tracked")
            },
            "momentum": {name: placed.read(name, each) for name, each in momentum.items()},
        },
        held=held,
        training=lambda: _make_training(
            placed, arrays, lambda inputs: step(inputs)[0], trained, lambda: reset(arrays.params)
        ),
    )


def _make_prepare(
    placed: _Placed, arrays: Arrays, device: torch.device
) -> Callable[[batches.Batch], Inputs]:
    """Images are normalised, and a network with one channel takes their first; of other inputs the
    dtype is the one that `place` gives them."""
    if "images" not in arrays.inputs:
        return lambda batch: tuple(placed.cast(each) for each in batch.fetch(device).values())
    channels = arrays.inputs["images"].shape[1]
    normalise = batches.make_prepare(device, placed.dtype)

    def prepare(batch: batches.Batch) -> Inputs:
        pixels, labels = normalise(batch)
        return pixels[:, :channels].contiguous(memory_format=placed.layout), labels

    return prepare


def _make_training(
    placed: _Placed,
    arrays: Arrays,
    learn: Callable[[Inputs], torch.Tensor],
    trained: list[nn.Parameter],
    reset: Callable[[], None],
) -> Training:
    device = trained[0].device
    forward = placed.compile(placed.module)
    last = placed.layout is torch.channels_last
    prepare = _make_prepare(placed, arrays, device)

    def validate(batch: batches.Batch) -> torch.Tensor:
        *inputs, labels = prepare(batch)
        placed.module.eval()
        with torch.no_grad():
            correct = (forward(*inputs).argmax(dim=-1) == labels).sum()
        placed.module.train()
        return correct

    def read_batch(batch: batches.Batch) -> dict[str, np.ndarray]:
        *inputs, labels = (each.cpu().numpy() for each in prepare(batch))
        if "images" in batch.arrays:
            return make_seen(inputs[0], labels)
        return make_inputs_seen(inputs, labels)

    return Training(
        layout="NHWC" if last else "NCHW",
        stage=batches.make_stage(device, channels_last=last),
        send=batches.make_send(device),
        learn=lambda batch: learn(prepare(batch)).clone(),  # a graph's next replay overwrites it
        validate=validate,
        read_batch=read_batch,
        pending=lambda: trained,
        reset=reset,
    )


def _spread(placed: _Placed) -> nn.Module:
    """On several devices gradients are averaged while the backward pass runs. Every process has
    the same parameters already, or its part of them."""
    if placed.devices == 1 or placed.wanted.strategy != "data":
        return placed.module
    return nn.parallel.DistributedDataParallel(placed.module, broadcast_buffers=False)


def _shard(module: nn.Module) -> None:
    """Leave each process a part of every parameter. Those of a block are gathered together."""
    from torch.distributed.fsdp import fully_shard  # a second's import, for these cases alone

    for block in getattr(module, "blocks", ()):
        fully_shard(block)
    fully_shard(module)


def _split(module: nn.Module, device_type: str, devices: int) -> None:
    """Leave each process some heads and features of every block, as the module plans it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    mesh = init_device_mesh(device_type, (devices,))
    parallelize_module(module, mesh, module.split(devices))  # type: ignore[operator]


def _share_out(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """This process's part, where the other tensor is one. All processes have the whole."""
    if not hasattr(like, "placements"):
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)  # type: ignore[attr-defined]


def _find_address(tensor: torch.Tensor) -> int:
    """Address of the part that is here."""
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).data_ptr()  # type: ignore[operator]

"""Inference, training and per-sample gradients in JAX, for a network that is a plain function.

Images are NHWC, kernels HWIO, matrices (in, out): each side computes in its own layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from benchcore.program import REFERENCE, Arrays, ByName, Program, Training
from benchcore.workloads.networks.case import (
    BATCH,
    LEARNING_RATE,
    MOMENTUM,
    Case,
    check_strategy,
)
from benchcore.workloads.networks.per_sample.in_jax import make_per_sample, on_every_device
from benchcore.workloads.settings import BuildSettings
from benchcore.workloads.tensors.in_jax import to_host
from benchcore.workloads.vision.batches import in_jax as batches
from benchcore.workloads.vision.case import is_statistic
from benchcore.workloads.vision.pixels import make_inputs_seen, make_seen

Params = dict[str, jax.Array]
Inputs = dict[str, jax.Array]


def to_own(name: str, array: np.ndarray) -> np.ndarray:
    """A kernel as HWIO, a matrix as (in, out); tables of embeddings stay."""
    if "embedding" in name:
        return array
    return np.ascontiguousarray(array.transpose({4: (2, 3, 1, 0), 2: (1, 0)}.get(array.ndim)))


def to_canonical(name: str, array: np.ndarray) -> np.ndarray:
    """The inverse of `to_own`."""
    if "embedding" in name:
        return array
    return np.ascontiguousarray(array.transpose({4: (3, 2, 0, 1), 2: (1, 0)}.get(array.ndim)))


@dataclass(frozen=True, kw_only=True)
class Network:
    """`forward`: (parameters and statistics, inputs) -> logits, and the new running statistics;
    `at_rest` is the same in inference, where that differs."""

    forward: Callable[[Params, Inputs], tuple[jax.Array, Params]]
    at_rest: Callable[[Params, Inputs], tuple[jax.Array, Params]] | None = None
    to_own: Callable[[str, np.ndarray], np.ndarray] = to_own
    to_canonical: Callable[[str, np.ndarray], np.ndarray] = to_canonical
    split: Callable[[str], int | None] = lambda name: None
    """The axis of a parameter that devices share with the strategy `tensor`; None = each has it."""


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """Where arrays go, and how."""

    network: Network
    device: jax.Device | Sharding
    """Where parameters go: one device, or a copy on each."""
    spread: jax.Device | Sharding
    """Where inputs go: the same device, or a part on each."""
    dtype: jnp.dtype
    wanted: BuildSettings

    def place(self, params: ByName) -> Params:
        """Copies on the device: the originals must never be donated."""
        own = {name: self.network.to_own(name, array) for name, array in params.items()}
        found = {name: self._find(name, array) for name, array in own.items()}
        return {
            name: jnp.array(
                _take_parts(array, found[name]), dtype=self.dtype, copy=True, device=found[name]
            )
            for name, array in own.items()
        }

    def _find(self, name: str, array: np.ndarray) -> jax.Device | Sharding:
        """Where a parameter goes. Only an axis that the devices divide is shared: fully sharded the
        first one, with `tensor` the network's."""
        if self.wanted.strategy == "data" or not isinstance(self.device, NamedSharding):
            return self.device
        mesh = self.device.mesh
        divisible = [i for i, size in enumerate(array.shape) if size % mesh.size == 0]
        axis = next(iter(divisible), None)
        if self.wanted.strategy == "tensor":
            axis = self.network.split(name)
            axis = axis if axis in divisible else None
        parts = () if axis is None else (*[None] * axis, BATCH)
        return NamedSharding(mesh, PartitionSpec(*parts))

    def place_inputs(self, inputs: ByName) -> Inputs:
        """Images become NHWC."""
        own = {
            name: np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if array.ndim == 4 else array
            for name, array in inputs.items()
        }
        own = {name: _take_parts(array, self.spread) for name, array in own.items()}
        return self.cast(jax.device_put(own, self.spread))

    def cast(self, inputs: Inputs) -> Inputs:
        """Floating-point inputs in the case's dtype; others stay."""
        return {
            name: array.astype(self.dtype) if array.dtype == jnp.float32 else array
            for name, array in inputs.items()
        }

    def to_host(self, params: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        """Copies in canonical layout: the next step donates the device's buffers. Where processes
        share a parameter, each of them must ask for it."""
        whole = {name: self._gather(array) for name, array in params.items()}
        return {
            name: self.network.to_canonical(name, to_host(array)) for name, array in whole.items()
        }

    def _gather(self, array: jax.Array) -> jax.Array:
        if array.is_fully_addressable or array.is_fully_replicated:
            return array
        return jax.jit(lambda each: each, out_shardings=self.device)(array)


def _take_parts(array: np.ndarray, where: jax.Device | Sharding) -> np.ndarray | jax.Array:
    """This process's parts of an array that is spread over several processes."""
    if isinstance(where, jax.Device) or where.is_fully_addressable:
        return array
    return jax.make_array_from_callback(array.shape, where, lambda part: array[part])


def build(case: Case, arrays: Arrays, wanted: BuildSettings, network: Network) -> Program:
    """Set up the network on the device in the settings."""
    check_strategy(case, wanted.strategy)
    kept, spread = _find_devices(case, wanted)
    placed = _Placed(
        network=network,
        device=kept,
        spread=spread,
        dtype=jnp.float64 if case.precision == REFERENCE else jnp.float32,
        wanted=wanted,
    )
    if case.use_case == "train":
        return _train(arrays, placed)
    if case.use_case == "infer":
        return _without_state(
            arrays,
            placed,
            lambda params, inputs: {"logits": network.forward(params, inputs)[0]},
        )
    of_samples = make_per_sample(case, wanted, _loss_of(network))
    if isinstance(kept, NamedSharding):
        whole = wanted.processes == "per-device"
        of_samples = on_every_device(of_samples, kept.mesh, whole=whole)
    return _without_state(arrays, placed, of_samples)


def _find_devices(
    case: Case, wanted: BuildSettings
) -> tuple[jax.Device | Sharding, jax.Device | Sharding]:
    """Where parameters go, and where inputs: to all of a mesh, and spread over it."""
    processes = case.devices if wanted.processes == "per-device" else 1
    if jax.process_count() != processes:
        raise ValueError(
            f"wanted {processes} processes of JAX, got {jax.process_count()}; measure it with "
            "`deadheat compare`, which starts them"
        )
    first = 0 if processes > 1 else wanted.ordinal  # each process has one device
    devices = jax.devices(wanted.platform)[first:][: case.devices]
    if case.devices == 1:
        return devices[0], devices[0]
    if len(devices) < case.devices:
        raise ValueError(
            f"wanted {case.devices} devices, got {len(devices)}; start JAX with as many"
        )
    mesh = Mesh(np.array(devices), (BATCH,))
    kept = NamedSharding(mesh, PartitionSpec())
    whole = wanted.strategy == "tensor"
    return kept, kept if whole else NamedSharding(mesh, PartitionSpec(BATCH))


Outputs = Mapping[str, Any]


def _without_state(
    arrays: Arrays, placed: _Placed, function: Callable[[Params, Inputs], Outputs]
) -> Program:
    compiled = jax.jit(function)
    params = placed.place(arrays.params)

    def reset(given: ByName) -> None:
        nonlocal params
        params = placed.place(given)

    def read(outputs: Outputs) -> dict[str, np.ndarray]:
        """A tree of gradients in one vector, in canonical order and layout."""
        found: dict[str, np.ndarray] = {}
        for name, each in outputs.items():
            if isinstance(each, Mapping):
                parts = placed.to_host(each)
                found[name] = np.concatenate([parts[part].ravel() for part in arrays.params])
            else:
                found[name] = to_host(each)
        return found

    def held(inputs: Inputs) -> dict[str, object]:
        shaped = jax.eval_shape(function, params, inputs)
        return {
            "params": params,
            "state": params,
            "inputs": list(inputs.values()),
            "output_dtype": jax.tree.leaves(shaped)[0].dtype,
            "function": compiled,
            "arguments": (params, inputs),
        }

    return Program(
        place=placed.place_inputs,
        step=lambda inputs: compiled(params, inputs),
        reset=reset,
        read=read,
        lower=lambda inputs: compiled.lower(params, inputs),
        held=held,
    )


def _loss_of(network: Network) -> Callable[[Params, Inputs], tuple[jax.Array, Params]]:
    """The mean cross-entropy of all labels, and the new statistics."""

    def loss_of(params: Params, inputs: Inputs) -> tuple[jax.Array, Params]:
        logits, statistics = network.forward(params, inputs)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, inputs["labels"])
        return losses.mean(), statistics

    return loss_of


@dataclass(frozen=True, kw_only=True)
class _State:
    """What a step of a training takes and returns."""

    params: Params
    statistics: Params
    optimizer: optax.OptState


jax.tree_util.register_dataclass(
    _State, data_fields=["params", "statistics", "optimizer"], meta_fields=[]
)


def _train_step(network: Network) -> Callable[[_State, Inputs], tuple[_State, jax.Array]]:
    loss_of, optimizer = _loss_of(network), _optimizer()

    def train_step(state: _State, inputs: Inputs) -> tuple[_State, jax.Array]:
        def loss_and_statistics(params: Params) -> tuple[jax.Array, Params]:
            return loss_of({**params, **state.statistics}, inputs)

        differentiate = jax.value_and_grad(loss_and_statistics, has_aux=True)
        (loss, statistics), gradient = differentiate(state.params)
        updates, moved = optimizer.update(gradient, state.optimizer)
        params = optax.apply_updates(state.params, updates)
        return _State(params=params, statistics=statistics, optimizer=moved), loss

    return train_step


def _optimizer() -> optax.GradientTransformation:
    return optax.sgd(LEARNING_RATE, momentum=MOMENTUM)


def _train(arrays: Arrays, placed: _Placed) -> Program:
    function = _train_step(placed.network)

    def start(given: ByName) -> _State:
        arrays = placed.place(given)
        params = {name: array for name, array in arrays.items() if not is_statistic(name)}
        moments, *others = _optimizer().init(params)
        trace = {
            name: jax.device_put(each, params[name].sharding)
            for name, each in moments.trace.items()
        }
        return _State(
            params=params,
            statistics={name: arrays[name] for name in arrays.keys() - params.keys()},
            optimizer=(moments._replace(trace=trace), *others),
        )

    state = start(arrays.params)
    options: dict[str, Any] = {}
    if isinstance(placed.device, Sharding):
        kept = jax.tree.map(lambda array: array.sharding, state)
        options["out_shardings"] = (kept, placed.device)
    donated = (0,) if placed.wanted.donate == "yes" else ()
    compiled = jax.jit(function, donate_argnums=donated, **options)
    last = next(reversed(state.params))
    before = state.params[last]

    def step(inputs: Inputs) -> tuple[_State, jax.Array]:
        nonlocal state, before
        before = state.params[last]
        state, loss = compiled(state, inputs)
        return state, loss

    def reset(given: ByName) -> None:
        nonlocal state
        state = start(given)

    def held(inputs: Inputs) -> dict[str, object]:
        return {
            "params": state.params,
            "state": state,
            "inputs": list(inputs.values()),
            "output_dtype": jax.eval_shape(function, state, inputs)[1].dtype,
            "state_update": "in place" if before.is_deleted() else "copied",
            "function": compiled,
            "arguments": (state, inputs),
        }

    return Program(
        place=placed.place_inputs,
        step=step,
        reset=reset,
        read=lambda outputs: {"loss": np.asarray(outputs[1])},
        state=lambda: {
            "params": placed.to_host(state.params),
            "statistics": placed.to_host(state.statistics),
            "momentum": placed.to_host(state.optimizer[0].trace),
        },
        lower=lambda inputs: compiled.lower(state, inputs),
        held=held,
        training=lambda: _make_training(
            placed, arrays, lambda inputs: step(inputs)[1], lambda: state, reset
        ),
    )


def _make_prepare(placed: _Placed, arrays: Arrays) -> Callable[[Inputs], Inputs]:
    """Images are normalised, and a network with one channel takes their first; of other inputs the
    dtype is the case's."""
    if "images" not in arrays.inputs:
        return placed.cast
    channels = arrays.inputs["images"].shape[1]
    normalise = batches.make_prepare(placed.dtype)

    def prepare(batch: Inputs) -> Inputs:
        given = normalise(batch)
        return {**given, "images": given["images"][..., :channels]}

    return prepare


def _make_training(
    placed: _Placed,
    arrays: Arrays,
    learn: Callable[[Inputs], jax.Array],
    held: Callable[[], _State],
    reset: Callable[[ByName], None],
) -> Training:
    prepare = _make_prepare(placed, arrays)
    forward = placed.network.at_rest or placed.network.forward

    @jax.jit
    def count(state: _State, batch: Inputs) -> jax.Array:
        logits, _ = forward({**state.params, **state.statistics}, batch)
        return batches.count_correct(logits, batch["labels"])

    def read_batch(batch: Inputs) -> dict[str, np.ndarray]:
        given = prepare(batch)  # JAX sorts the names
        *inputs, labels = (to_host(given[name]) for name in arrays.inputs)
        if "images" in batch:
            return make_seen(inputs[0].transpose(0, 3, 1, 2), labels)
        return make_inputs_seen(inputs, labels)

    return Training(
        layout="NHWC",
        stage=batches.stage,
        send=batches.make_send(placed.device),  # type: ignore[arg-type] # one device
        learn=lambda batch: learn(prepare(batch)),
        validate=lambda batch: count(held(), prepare(batch)),
        read_batch=read_batch,
        pending=held,
        reset=lambda: reset(arrays.params),
    )

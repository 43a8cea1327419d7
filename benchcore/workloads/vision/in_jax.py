"""Inference and training of vision models in Flax NNX, with weights by torchvision's names.
Works on NHWC images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from benchcore.program import Arrays, ByName, Program, Settings, Training
from benchcore.workloads.settings import JAX_COMPILE, Options, read_settings
from benchcore.workloads.tensors.in_jax import to_host, widen
from benchcore.workloads.vision.batches import in_jax as batches
from benchcore.workloads.vision.case import (
    ADAMW_BETAS,
    ADAMW_EPSILON,
    CLASSES,
    LABEL_SMOOTHING,
    MOMENTUM,
    Case,
)
from benchcore.workloads.vision.layers.in_jax import Noise, record
from benchcore.workloads.vision.pixels import make_seen
from benchcore.workloads.vision.placing.in_jax import (
    Inputs,
    Leaves,
    MakeNetwork,
    Placed,
    place,
)


def build(
    case: Case,
    arrays: Arrays,
    settings: Settings,
    *,
    make: MakeNetwork,
    options: Options,
) -> Program:
    """Set up the network that `make` returns, on the device in the settings; `options` are the
    settings that the model's spec allows for JAX."""
    placed = place(case, arrays, read_settings(settings, JAX_COMPILE, options), make)
    if case.use_case == "infer":
        return _infer(placed, arrays)
    return _train(case, arrays, placed)


def _infer(placed: Placed, arrays: Arrays) -> Program:
    def forward(params: Leaves, statistics: Leaves, images: jax.Array) -> jax.Array:
        return placed.merge(params, statistics)(images, None)

    compiled = jax.jit(forward)
    leaves = placed.params.place(arrays.params), placed.statistics.place(arrays.params)

    def reset(params: ByName) -> None:
        nonlocal leaves
        leaves = placed.params.place(params), placed.statistics.place(params)

    def given(inputs: Inputs) -> tuple[Leaves, Leaves, jax.Array]:
        return (*leaves, placed.fetch(inputs)["images"])

    return Program(
        place=placed.place_inputs,
        step=lambda inputs: compiled(*given(inputs)),
        reset=reset,
        read=lambda logits: {"logits": to_host(logits)},
        lower=lambda inputs: compiled.lower(*given(inputs)),
        held=lambda inputs: {
            "params": leaves,
            "inputs": inputs,
            "output_dtype": jax.eval_shape(forward, *given(inputs)).dtype,
            "function": compiled,
            "arguments": given(inputs),
        },
        layers=lambda inputs: _name_layers(placed, *given(inputs), None),
    )


def _name_layers(
    placed: Placed, params: Leaves, statistics: Leaves, images: jax.Array, noise: Noise | None
) -> dict[str, np.ndarray]:
    """The output of every layer, channels second as in torch."""

    names: list[str] = []  # in call order: the keys of a dictionary come back from jit sorted

    def forward(params: Leaves, statistics: Leaves, images: jax.Array) -> list[jax.Array]:
        outputs = record(placed.merge(params, statistics), images, noise)
        names[:] = outputs
        return list(outputs.values())

    outputs = map(to_host, jax.jit(forward)(params, statistics, images))
    return {
        name: np.moveaxis(output, -1, 1) if output.ndim == 4 else output
        for name, output in zip(names, outputs, strict=True)
    }


@dataclass(frozen=True, kw_only=True)
class _State:
    """The arrays that a training step takes and returns."""

    params: Leaves
    statistics: Leaves
    optimizer: Any
    step: jax.Array


jax.tree_util.register_dataclass(
    _State, data_fields=["params", "statistics", "optimizer", "step"], meta_fields=[]
)


def make_optimizer(case: Case) -> optax.GradientTransformation:
    """SGD adds the decay to the gradient before the momentum, as `torch.optim.SGD` does; AdamW
    subtracts it from the parameters, as `torch.optim.AdamW` does."""
    if case.optimizer == "adamw":
        first, second = ADAMW_BETAS
        return optax.adamw(
            case.learning_rate,
            b1=first,
            b2=second,
            eps=ADAMW_EPSILON,
            weight_decay=case.weight_decay,
        )
    return optax.chain(
        optax.add_decayed_weights(case.weight_decay),
        optax.sgd(case.learning_rate, momentum=MOMENTUM),
    )


def _train_step(case: Case, placed: Placed) -> Callable[..., tuple[_State, jax.Array]]:
    optimizer = make_optimizer(case)

    def loss_of(
        params: Leaves, statistics: Leaves, noise: Noise, inputs: Mapping[str, jax.Array]
    ) -> tuple[jax.Array, Leaves]:
        network = placed.merge(params, statistics)
        logits = widen(network(inputs["images"], noise))
        wanted = optax.smooth_labels(jax.nn.one_hot(inputs["labels"], CLASSES), LABEL_SMOOTHING)
        loss = optax.softmax_cross_entropy(logits, wanted).mean()
        return loss, jax.tree.leaves(nnx.state(network, nnx.BatchStat))

    def train_step(
        state: _State, inputs: Mapping[str, jax.Array], strength: jax.Array
    ) -> tuple[_State, jax.Array]:
        noise = Noise(state.step, strength)
        (loss, statistics), gradient = jax.value_and_grad(loss_of, has_aux=True)(
            state.params, state.statistics, noise, inputs
        )
        updates, moved = optimizer.update(gradient, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        after = _State(params=params, statistics=statistics, optimizer=moved, step=state.step + 1)
        return after, loss

    return train_step


def _describe_forward(placed: Placed, state: _State, images: jax.Array) -> dict[str, object]:
    """The logits' dtype and the rates of all that is dropped, of the network traced once more."""
    drop_rates: list[float] = []

    def logits(state: _State, images: jax.Array) -> jax.Array:
        noise = Noise(state.step, jnp.float32(1.0))
        found = placed.merge(state.params, state.statistics)(images, noise)
        drop_rates[:] = noise.rates
        return found

    dtype = jax.eval_shape(logits, state, images).dtype
    return {"output_dtype": dtype, "drop_rates": drop_rates}


def _train(case: Case, arrays: Arrays, placed: Placed) -> Program:
    compiled = jax.jit(_train_step(case, placed), donate_argnums=0 if placed.donate else ())
    off, full = (jax.device_put(jnp.float32(each), placed.device) for each in (0.0, 1.0))
    strength = full

    def start(given: ByName) -> _State:
        params = placed.params.place(given)
        optimizer = jax.device_put(make_optimizer(case).init(params), placed.device)
        return _State(
            params=params,
            statistics=placed.statistics.place(given),
            optimizer=optimizer,
            step=jax.device_put(jnp.int32(0), placed.device),
        )

    state = start(arrays.params)
    before = state.params[-1]

    def learn(given: Inputs) -> jax.Array:
        nonlocal state, before
        before = state.params[-1]
        state, loss = compiled(state, given, strength)
        return loss

    def step(inputs: Inputs) -> tuple[_State, jax.Array | float]:
        loss = learn(placed.fetch(inputs))
        return state, float(loss) if "loss-fetched" in placed.defects else loss

    def reset(given: ByName) -> None:
        nonlocal state
        state = start(given)

    def use_random(on: bool) -> None:
        nonlocal strength
        strength = full if on else off

    def held(inputs: Inputs) -> dict[str, object]:
        fetched = placed.fetch(inputs)
        return {
            "params": state.params,
            "inputs": inputs,
            **_describe_forward(placed, state, fetched["images"]),
            "state_update": "in place" if before.is_deleted() else "copied",
            "function": compiled,
            "arguments": (state, fetched, full),
        }

    def layers(inputs: Inputs) -> dict[str, np.ndarray]:
        noise, images = Noise(jnp.int32(0), off), placed.fetch(inputs)["images"]
        return _name_layers(placed, state.params, state.statistics, images, noise)

    return Program(
        place=placed.place_inputs,
        step=step,
        reset=reset,
        read=lambda outputs: {"loss": np.asarray(outputs[1])},
        state=lambda: _read_state(case, placed, state),
        use_random=use_random,
        lower=lambda inputs: compiled.lower(state, placed.fetch(inputs), full),
        held=held,
        layers=layers,
        training=lambda: _make_training(placed, learn, lambda: state, lambda: reset(arrays.params)),
    )


def _make_training(
    placed: Placed,
    learn: Callable[[Mapping[str, jax.Array]], jax.Array],
    held: Callable[[], _State],
    reset: Callable[[], None],
) -> Training:
    graph, prepare = placed.at_rest(), batches.make_prepare(placed.images_dtype)

    @jax.jit
    def count(params: Leaves, statistics: Leaves, batch: Mapping[str, jax.Array]) -> jax.Array:
        states = placed.params.unflatten(params), placed.statistics.unflatten(statistics)
        logits = nnx.merge(graph, *states)(batch["images"], None)
        return batches.count_correct(logits, batch["labels"])

    def read_batch(batch: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
        given = prepare(batch)
        return make_seen(to_host(given["images"]).transpose(0, 3, 1, 2), to_host(given["labels"]))

    return Training(
        layout="NHWC",
        stage=batches.stage,
        send=batches.make_send(placed.device),
        learn=lambda batch: learn(prepare(batch)),
        validate=lambda batch: count(held().params, held().statistics, prepare(batch)),
        read_batch=read_batch,
        pending=held,
        reset=reset,
    )


_MOMENTS = {"sgd": {"momentum": "trace"}, "adamw": {"first_moment": "mu", "second_moment": "nu"}}
"""The optimiser's state, as Optax calls it."""


def _read_state(case: Case, placed: Placed, state: _State) -> dict[str, dict[str, np.ndarray]]:
    """Copies, because the device buffers are donated next."""
    moments = {
        group: placed.params.to_canonical(optax.tree.get(state.optimizer, key))
        for group, key in _MOMENTS[case.optimizer].items()
    }
    return {
        "params": placed.params.to_canonical(state.params),
        "statistics": placed.statistics.to_canonical(state.statistics),
        **moments,
    }

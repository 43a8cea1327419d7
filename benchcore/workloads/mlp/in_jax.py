"""The multi-layer perceptron in JAX: plain functions, one `jax.jit` per step, SGD from optax."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax

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
from benchcore.workloads.settings import JAX_COMPILE, read_settings

Params = dict[str, jax.Array]


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the perceptron on the device in the settings."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    device = jax.devices(wanted.platform)[wanted.ordinal]
    dtypes = {"bf16": jnp.bfloat16, REFERENCE: jnp.float64}
    dtype = dtypes.get(case.precision, jnp.float32)
    rotation = Rotation(
        [_place_inputs(each, device, dtype) for each in roll(arrays.inputs, INPUT_BUFFERS)]
    )

    def place() -> Params:
        return _place(arrays.params, device, dtype)

    if case.use_case == "infer":
        return _infer(case, place(), rotation)
    return _train(case, arrays, rotation, place, donate=wanted.donate == "yes")


def _place(params: Mapping[str, np.ndarray], device: jax.Device, dtype: jnp.dtype) -> Params:
    """A copy on the device with weights as (in, out): the originals must never be donated."""
    return {
        name: jnp.array(_other_layout(array), dtype=dtype, copy=True, device=device)
        for name, array in params.items()
    }


def _place_inputs(
    inputs: Mapping[str, np.ndarray], device: jax.Device, dtype: jnp.dtype
) -> tuple[jax.Array, ...]:
    """Images, and labels in training."""
    placed = jax.device_put(dict(inputs), device)
    return tuple(
        placed[name].astype(dtype) if name == "images" else placed[name] for name in inputs
    )


def _other_layout(array: np.ndarray) -> np.ndarray:
    """(out, in) to (in, out) and back; biases are unchanged."""
    return np.ascontiguousarray(array.T)


def _layers(case: Case) -> Callable[[Params, jax.Array], Params]:
    """Under `bf16_autocast` operands are cast at each use; parameters stay float32."""
    names = [name for name, _, _ in case.layers]

    def cast(values: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return jax.tree.map(lambda value: value.astype(jnp.bfloat16), values)

    def forward(params: Params, images: jax.Array) -> Params:
        """Images (batch, in) to the output (batch, out) of every layer before its ReLU."""
        if case.precision == "bf16_autocast":
            params, images = cast(params), images.astype(jnp.bfloat16)
        value, sums = images, {}
        for name in names:
            value = jax.nn.relu(value) if sums else value
            sums[name] = value = value @ params[f"{name}.weight"] + params[f"{name}.bias"]
        return sums

    return forward


def _forward(case: Case) -> Callable[[Params, jax.Array], jax.Array]:
    """The output of the last layer: the logits."""
    layers = _layers(case)
    return lambda params, images: layers(params, images)[case.layers[-1][0]]


def _infer(case: Case, params: Params, rotation: Rotation[tuple[jax.Array, ...]]) -> Program:
    forward = _forward(case)
    compiled = jax.jit(forward)
    (images,) = rotation.buffers[0]
    return Program(
        step=lambda: compiled(params, *rotation.take()),
        lower=lambda: compiled.lower(params, images),
        evidence=lambda: {"logits": _on_host(compiled(params, images))},
        held=lambda: {
            "params": params,
            "inputs": images,
            "rotation": rotation,
            "output_dtype": jax.eval_shape(forward, params, images).dtype,
            "function": compiled,
            "arguments": (params, images),
        },
        parts=lambda: _name_layers(case, params, images),
    )


def _name_layers(case: Case, params: Params, images: jax.Array) -> dict[str, np.ndarray]:
    sums = jax.jit(_layers(case))(params, images)
    return name_parts("layer", {name: _on_host(sums[name]) for name, _, _ in case.layers})


def _optimizer() -> optax.GradientTransformation:
    return optax.sgd(LEARNING_RATE, momentum=MOMENTUM)


def _train_step(case: Case) -> Callable[..., tuple[Params, optax.OptState, jax.Array]]:
    forward, optimizer = _forward(case), _optimizer()

    def loss_of(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
        logits = _widen(forward(params, images))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def train_step(
        params: Params, state: optax.OptState, images: jax.Array, labels: jax.Array
    ) -> tuple[Params, optax.OptState, jax.Array]:
        loss, gradient = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, loss

    return train_step


def _train(
    case: Case,
    arrays: Arrays,
    rotation: Rotation[tuple[jax.Array, ...]],
    place: Callable[[], Params],
    *,
    donate: bool,
) -> Program:
    compiled = jax.jit(_train_step(case), donate_argnums=(0, 1) if donate else ())
    images, labels = rotation.buffers[0]
    last_bias = f"{case.layers[-1][0]}.bias"

    def start() -> tuple[Params, optax.OptState]:
        params = place()
        return params, jax.device_put(_optimizer().init(params), images.device)

    params, state = start()
    before = params[last_bias]

    def step() -> object:
        nonlocal params, state, before
        before = params[last_bias]
        params, state, loss = compiled(params, state, *rotation.take())
        return params, state, loss

    def evidence() -> dict[str, np.ndarray]:
        fresh, state = start()
        losses = []
        first: dict[str, np.ndarray] = {}
        for _ in range(TRACE_STEPS):
            fresh, state, loss = compiled(fresh, state, images, labels)
            losses.append(np.asarray(loss))
            first = first or _first_step(arrays.params, fresh, state)
        found = {**first, "loss_trace": np.array(losses)}
        return {name: found[name] for name in tolerances(case)}

    def lower() -> jax.stages.Lowered:
        return compiled.lower(params, state, images, labels)

    def held() -> dict[str, object]:
        return {
            "params": params,
            "inputs": (images, labels),
            "rotation": rotation,
            "output_dtype": jax.eval_shape(_forward(case), params, images).dtype,
            "state_update": "in place" if before.is_deleted() else "copied",
            "function": compiled,
            "arguments": (params, state, images, labels),
        }

    def parts() -> dict[str, np.ndarray]:
        fresh, state = start()
        layers = _name_layers(case, fresh, images)
        fresh, state, _ = compiled(fresh, state, images, labels)
        return layers | name_parts("gradient", _to_host(state[0].trace))

    return Program(step=step, evidence=evidence, lower=lower, held=held, parts=parts)


def _first_step(
    before: Mapping[str, np.ndarray], params: Params, state: optax.OptState
) -> dict[str, np.ndarray]:
    """Gradient and update of step 1. Momentum starts at zero, so its trace is the gradient."""
    after, trace = _to_host(params), _to_host(state[0].trace)
    update = {name: after[name] - before[name] for name in before}
    return {"gradient": flatten(trace, before), "update": flatten(update, before)}


def _to_host(params: Params) -> dict[str, np.ndarray]:
    """Host copies in canonical layout: the next step donates the device buffers."""
    return {name: _other_layout(_on_host(array)) for name, array in params.items()}


def _on_host(array: jax.Array) -> np.ndarray:
    """A copy in at least float32: numpy's files have no bfloat16."""
    return np.array(_widen(array))


def _widen(array: jax.Array) -> jax.Array:
    """bfloat16 becomes float32, which is exact; float64 stays."""
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))

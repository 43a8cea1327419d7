"""The multi-layer perceptron in JAX: plain functions, one `jax.jit` a step, SGD from optax."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.mlp.spec import (
    INPUT_BUFFERS,
    LEARNING_RATE,
    MOMENTUM,
    SETTINGS,
    TRACE_STEPS,
    Case,
    flatten,
    tolerances,
)
from benchcore.workloads.rotation import Rotation, roll
from benchcore.workloads.settings import JAX_COMPILE, read_settings

Params = dict[str, jax.Array]


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set the perceptron up on the device that the settings name."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    device = jax.devices(wanted.platform)[wanted.ordinal]
    dtype = jnp.bfloat16 if case.precision == "bf16" else jnp.float32
    rotation = Rotation(
        [_place_inputs(each, device, dtype) for each in roll(arrays.inputs, INPUT_BUFFERS)]
    )

    def place() -> Params:
        return _place(arrays.params, device, dtype)

    if case.use_case == "infer":
        return _infer(place(), rotation, _forward(case))
    return _train(case, arrays, rotation, place, donate=wanted.donate == "yes")


def _place(params: Mapping[str, np.ndarray], device: jax.Device, dtype: jnp.dtype) -> Params:
    """A fresh copy on the device, weights as (in, out). Donation must never reach the originals."""
    return {
        name: jnp.array(_other_layout(array), dtype=dtype, copy=True, device=device)
        for name, array in params.items()
    }


def _place_inputs(
    inputs: Mapping[str, np.ndarray], device: jax.Device, dtype: jnp.dtype
) -> tuple[jax.Array, ...]:
    """Images, and labels where there are any."""
    placed = jax.device_put(dict(inputs), device)
    return tuple(
        placed[name].astype(dtype) if name == "images" else placed[name] for name in inputs
    )


def _other_layout(array: np.ndarray) -> np.ndarray:
    """(out, in) to (in, out) and back; biases stay."""
    return np.ascontiguousarray(array.T)


def _forward(case: Case) -> Callable[[Params, jax.Array], jax.Array]:
    """Under `bf16_autocast` operands are cast where they are used; the parameters stay float32."""
    names = [name for name, _, _ in case.layers]

    def cast(values: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return jax.tree.map(lambda value: value.astype(jnp.bfloat16), values)

    def forward(params: Params, images: jax.Array) -> jax.Array:
        """Images (batch, in) to logits (batch, classes)."""
        if case.precision == "bf16_autocast":
            params, images = cast(params), images.astype(jnp.bfloat16)
        value = images
        for name in names[:-1]:
            value = jax.nn.relu(value @ params[f"{name}.weight"] + params[f"{name}.bias"])
        return value @ params[f"{names[-1]}.weight"] + params[f"{names[-1]}.bias"]

    return forward


def _infer(
    params: Params,
    rotation: Rotation[tuple[jax.Array, ...]],
    forward: Callable[..., jax.Array],
) -> Program:
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
    )


def _optimizer() -> optax.GradientTransformation:
    return optax.sgd(LEARNING_RATE, momentum=MOMENTUM)


def _train_step(case: Case) -> Callable[..., tuple[Params, optax.OptState, jax.Array]]:
    forward, optimizer = _forward(case), _optimizer()

    def loss_of(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
        logits = forward(params, images).astype(jnp.float32)
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

    return Program(step=step, evidence=evidence, lower=lower, held=held)


def _first_step(
    before: Mapping[str, np.ndarray], params: Params, state: optax.OptState
) -> dict[str, np.ndarray]:
    """Gradient and update of step one: momentum starts at zero, so its trace is the gradient."""
    after, trace = _to_host(params), _to_host(state[0].trace)
    update = {name: after[name] - before[name] for name in before}
    return {"gradient": flatten(trace, before), "update": flatten(update, before)}


def _to_host(params: Params) -> dict[str, np.ndarray]:
    """Host copies in canonical layout; copies, because the device buffers are donated next."""
    return {name: _other_layout(_on_host(array)) for name, array in params.items()}


def _on_host(array: jax.Array) -> np.ndarray:
    """A float32 copy: numpy's files have no bfloat16, and every bfloat16 is a float32."""
    return np.array(array, dtype=np.float32)

"""The multi-layer perceptron in JAX: plain functions, one `jax.jit` per step, SGD from optax."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchcore.program import REFERENCE, Arrays, Program, Settings
from benchcore.workloads.mlp.spec import (
    LEARNING_RATE,
    MOMENTUM,
    SETTINGS,
    Case,
)
from benchcore.workloads.settings import JAX_COMPILE, read_settings
from benchcore.workloads.tensors.in_jax import to_host, widen

Params = dict[str, jax.Array]
Inputs = tuple[jax.Array, ...]
Place = Callable[[Mapping[str, np.ndarray]], Params]
PlaceInputs = Callable[[Mapping[str, np.ndarray]], Inputs]


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the perceptron on the device in the settings."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    device = jax.devices(wanted.platform)[wanted.ordinal]
    dtypes = {"bf16": jnp.bfloat16, REFERENCE: jnp.float64}
    dtype = dtypes.get(case.precision, jnp.float32)

    def place(params: Mapping[str, np.ndarray]) -> Params:
        return _place(params, device, dtype)

    def place_inputs(inputs: Mapping[str, np.ndarray]) -> Inputs:
        return _place_inputs(inputs, device, dtype)

    if case.use_case == "infer":
        return _infer(case, arrays, place, place_inputs)
    return _train(case, arrays, place, place_inputs, donate=wanted.donate == "yes")


def _place(params: Mapping[str, np.ndarray], device: jax.Device, dtype: jnp.dtype) -> Params:
    """A copy on the device with weights as (in, out): the originals must never be donated."""
    return {
        name: jnp.array(_other_layout(array), dtype=dtype, copy=True, device=device)
        for name, array in params.items()
    }


def _place_inputs(inputs: Mapping[str, np.ndarray], device: jax.Device, dtype: jnp.dtype) -> Inputs:
    """Images, and labels where there are any."""
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


def _infer(case: Case, arrays: Arrays, place: Place, place_inputs: PlaceInputs) -> Program:
    forward = _forward(case)
    compiled = jax.jit(forward)
    params = place(arrays.params)

    def reset(given: Mapping[str, np.ndarray]) -> None:
        nonlocal params
        params = place(given)

    return Program(
        place=place_inputs,
        step=lambda inputs: compiled(params, *inputs),
        reset=reset,
        read=lambda logits: {"logits": to_host(logits)},
        lower=lambda inputs: compiled.lower(params, *inputs),
        held=lambda inputs: {
            "params": params,
            "inputs": inputs,
            "output_dtype": jax.eval_shape(forward, params, *inputs).dtype,
            "function": compiled,
            "arguments": (params, *inputs),
        },
        layers=lambda inputs: _name_layers(case, params, *inputs),
    )


def _name_layers(case: Case, params: Params, images: jax.Array) -> dict[str, np.ndarray]:
    sums = jax.jit(_layers(case))(params, images)
    return {name: to_host(sums[name]) for name, _, _ in case.layers}


def _optimizer() -> optax.GradientTransformation:
    return optax.sgd(LEARNING_RATE, momentum=MOMENTUM)


def _train_step(case: Case) -> Callable[..., tuple[Params, optax.OptState, jax.Array]]:
    forward, optimizer = _forward(case), _optimizer()

    def loss_of(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
        logits = widen(forward(params, images))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def train_step(
        params: Params, state: optax.OptState, images: jax.Array, labels: jax.Array
    ) -> tuple[Params, optax.OptState, jax.Array]:
        loss, gradient = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, loss

    return train_step


def _train(
    case: Case, arrays: Arrays, place: Place, place_inputs: PlaceInputs, *, donate: bool
) -> Program:
    compiled = jax.jit(_train_step(case), donate_argnums=(0, 1) if donate else ())
    last_bias = f"{case.layers[-1][0]}.bias"

    def start(given: Mapping[str, np.ndarray]) -> tuple[Params, optax.OptState]:
        params = place(given)
        return params, jax.device_put(_optimizer().init(params), params[last_bias].device)

    params, state = start(arrays.params)
    before = params[last_bias]

    def step(inputs: Inputs) -> object:
        nonlocal params, state, before
        before = params[last_bias]
        params, state, loss = compiled(params, state, *inputs)
        return params, state, loss

    def reset(given: Mapping[str, np.ndarray]) -> None:
        nonlocal params, state
        params, state = start(given)

    def held(inputs: Inputs) -> dict[str, object]:
        return {
            "params": params,
            "inputs": inputs,
            "output_dtype": jax.eval_shape(_forward(case), params, inputs[0]).dtype,
            "state_update": "in place" if before.is_deleted() else "copied",
            "function": compiled,
            "arguments": (params, state, *inputs),
        }

    return Program(
        place=place_inputs,
        step=step,
        reset=reset,
        read=lambda outputs: {"loss": np.asarray(outputs[2])},
        state=lambda: {"params": _to_host(params), "momentum": _to_host(state[0].trace)},
        lower=lambda inputs: compiled.lower(params, state, *inputs),
        held=held,
        layers=lambda inputs: _name_layers(case, params, inputs[0]),
    )


def _to_host(params: Params) -> dict[str, np.ndarray]:
    """Host copies in canonical layout: the next step donates the device buffers."""
    return {name: _other_layout(to_host(array)) for name, array in params.items()}

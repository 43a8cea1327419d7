"""The ensemble in JAX: one network after the other, `jax.vmap` over stacked weights, or batched
products and grouped convolutions; one `jax.jit`, or operation by operation. Images NHWC, weights
HWIO."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchcore.program import Arrays, ByName, Program, Settings
from benchcore.workloads.ensemble.spec import SETTINGS, Case
from benchcore.workloads.settings import JAX_COMPILE, read_settings

Params = dict[str, jax.Array]
Network = Callable[[Params, jax.Array], jax.Array]


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up all networks on the device; a step computes their outputs, or losses and gradients."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    device = jax.devices(wanted.platform)[wanted.ordinal]
    forward = _FORWARD[wanted.batching](case)
    infer = case.use_case == "infer"
    compute = forward if infer else _differentiate(forward)
    compiled, compiles = jax.jit(compute), wanted.compile == "jit"
    run = compiled if compiles else compute

    def place(given: ByName) -> Params:
        return {name: _place(array, device) for name, array in given.items()}

    params = place(arrays.params)

    def reset(given: ByName) -> None:
        nonlocal params
        params = place(given)

    def read_outputs(outputs: jax.Array) -> ByName:
        host = np.asarray(outputs)
        return {"outputs": host.transpose(0, 1, 4, 2, 3) if case.convolves else host}

    return Program(
        place=lambda inputs: _place_images(case, inputs["images"], device),
        step=lambda inputs: run(params, inputs),
        reset=reset,
        read=read_outputs if infer else _read_gradient,
        lower=(lambda inputs: compiled.lower(params, inputs)) if compiles else None,
        held=lambda inputs: {
            "params": params,
            "inputs": inputs,
            "output_dtype": jax.tree.leaves(jax.eval_shape(compute, params, inputs))[0].dtype,
            "function": compiled,  # of an eager side only to read its operations
            "arguments": (params, inputs),
        },
    )


_OWN = {5: (0, 3, 4, 2, 1), 3: (0, 2, 1), 2: (0, 1)}
_CANONICAL = {5: (0, 4, 3, 1, 2), 3: (0, 2, 1), 2: (0, 1)}
"""Axes of parameters by their number: (models, out, in, 3, 3) to (models, 3, 3, in, out)."""


def _place(array: np.ndarray, device: jax.Device) -> jax.Array:
    return jax.device_put(np.ascontiguousarray(array.transpose(_OWN[array.ndim])), device)


def _place_images(case: Case, images: np.ndarray, device: jax.Device) -> jax.Array:
    own = images.transpose(0, 1, 3, 4, 2) if case.convolves else images.reshape(
        *images.shape[:2], -1
    )  # fmt: skip
    return jax.device_put(np.ascontiguousarray(own), device)


def _convolve(value: jax.Array, weight: jax.Array, groups: int = 1) -> jax.Array:
    return lax.conv_general_dilated(
        value,
        weight,
        (1, 1),
        [(1, 1)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _network(case: Case) -> Network:
    """One network: `images` (batch, side, side, channels), or (batch, features)."""
    apply = _convolve if case.convolves else jnp.matmul

    def forward(params: Params, images: jax.Array) -> jax.Array:
        value = images
        for index, (name, _, _) in enumerate(case.layers):
            value = jax.nn.silu(value) if index else value
            value = apply(value, params[f"{name}.weight"]) + params[f"{name}.bias"]
        return value

    return forward


def _loop(case: Case) -> Network:
    one = _network(case)

    def forward(params: Params, images: jax.Array) -> jax.Array:
        outputs = [
            one({name: param[index] for name, param in params.items()}, images[index])
            for index in range(case.models)
        ]
        return jnp.stack(outputs)

    return forward


def _batched(case: Case) -> Network:
    """Convolutions have the networks side by side in their channels, as groups."""

    def multiply(params: Params, images: jax.Array) -> jax.Array:
        value = images
        for index, (name, _, _) in enumerate(case.layers):
            value = jax.nn.silu(value) if index else value
            value = value @ params[f"{name}.weight"] + params[f"{name}.bias"][:, None]
        return value

    def convolve(params: Params, images: jax.Array) -> jax.Array:
        value = jnp.moveaxis(images, 0, 3).reshape(*images.shape[1:4], -1)
        for index, (name, _, _) in enumerate(case.layers):
            value = jax.nn.silu(value) if index else value
            weight = jnp.moveaxis(params[f"{name}.weight"], 0, 3)
            weight = weight.reshape(*weight.shape[:3], -1)
            value = _convolve(value, weight, case.models) + params[f"{name}.bias"].ravel()
        return jnp.moveaxis(value.reshape(*value.shape[:3], case.models, -1), 3, 0)

    return convolve if case.convolves else multiply


_FORWARD: Mapping[str, Callable[[Case], Network]] = {
    "loop": _loop,
    "vmap": lambda case: jax.vmap(_network(case)),
    "batched": _batched,
}


def _differentiate(forward: Network) -> Callable[..., tuple[jax.Array, Params]]:
    """Losses (models,), and the gradients of all: each depends on its own network alone."""

    def compute_losses(params: Params, images: jax.Array) -> jax.Array:
        outputs = forward(params, images)
        return jnp.square(outputs).reshape(len(outputs), -1).mean(axis=1)

    def differentiate(params: Params, images: jax.Array) -> tuple[jax.Array, Params]:
        losses, pull = jax.vjp(lambda given: compute_losses(given, images), params)
        return losses, pull(jnp.ones_like(losses))[0]

    return differentiate


def _read_gradient(found: tuple[jax.Array, Params]) -> ByName:
    losses, gradients = found
    host = [np.asarray(gradients[name]) for name in sorted(gradients)]
    parts = [each.transpose(_CANONICAL[each.ndim]).ravel() for each in host]
    return {"loss": np.asarray(losses), "gradient": np.concatenate(parts)}

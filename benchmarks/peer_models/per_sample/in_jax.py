"""Per-sample gradients as JAX's manual has them, `jit(vmap(grad))`, clipped and summed by optax.

The network of PyTorch's MNIST example in Flax Linen, with the case's own weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen

from benchcore.program import Arrays, ByName, Program

_LAYERS = ("conv1", "conv2", "fc1", "fc2")


class _Network(linen.Module):
    widths: tuple[int, int, int]

    @linen.compact
    def __call__(self, value: jax.Array) -> jax.Array:
        first, second, hidden = self.widths
        value = linen.relu(linen.Conv(first, (3, 3), padding="VALID", name="conv1")(value))
        value = linen.relu(linen.Conv(second, (3, 3), padding="VALID", name="conv2")(value))
        value = linen.max_pool(value, (2, 2), (2, 2)).reshape(len(value), -1)
        value = linen.relu(linen.Dense(hidden, name="fc1")(value))
        return linen.Dense(10, name="fc2")(value)


@dataclass(frozen=True)
class _Layout:
    """Kernels as HWIO and (in, out); `fc1` takes its features in the order of NHWC."""

    channels: int
    side: int

    def to_own(self, params: ByName) -> dict[str, Any]:
        return {"params": {name: self._to_layer(name, params) for name in _LAYERS}}

    def _to_layer(self, name: str, params: ByName) -> dict[str, jax.Array]:
        weight = params[f"{name}.weight"]
        if name == "fc1":
            weight = weight.reshape(-1, self.channels, self.side, self.side)
            weight = weight.transpose(0, 2, 3, 1).reshape(len(weight), -1)
        kernel = weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T
        return {"kernel": jnp.array(kernel), "bias": jnp.array(params[f"{name}.bias"])}

    def to_canonical(self, own: Mapping[str, Any]) -> dict[str, np.ndarray]:
        found = {}
        for name, layer in own["params"].items():
            kernel = np.asarray(layer["kernel"])
            weight = kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel.T
            if name == "fc1":
                weight = weight.reshape(-1, self.side, self.side, self.channels)
                weight = weight.transpose(0, 3, 1, 2)
            found[f"{name}.weight"], found[f"{name}.bias"] = weight, np.asarray(layer["bias"])
        return found


def build(case: Any, arrays: Arrays) -> Program:
    """The norms, and the sum of the clipped gradients, of a batch."""
    given = arrays.params
    network = _Network(tuple(len(given[f"{name}.bias"]) for name in _LAYERS[:3]))
    channels = len(given["conv2.bias"])
    layout = _Layout(channels, math.isqrt(given["fc1.weight"].shape[1] // channels))
    step_of = jax.jit(_make_step(network, case.clip))
    variables = layout.to_own(given)

    def reset(params: ByName) -> None:
        nonlocal variables
        variables = layout.to_own(params)

    def place(inputs: ByName) -> tuple[jax.Array, jax.Array]:
        images = np.ascontiguousarray(inputs["images"].transpose(0, 2, 3, 1))
        return jnp.asarray(images), jnp.asarray(inputs["labels"])

    def read(outputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        parts = layout.to_canonical(outputs["clipped_sum"])
        whole = np.concatenate([parts[name].ravel() for name in given])
        return {"norms": np.array(outputs["norms"]), "clipped_sum": whole}

    def held(inputs: tuple[jax.Array, jax.Array]) -> dict[str, object]:
        return {
            "params": variables,
            "inputs": list(inputs),
            "output_dtype": jnp.float32,
            "function": step_of,
            "arguments": (variables, *inputs),
        }

    return Program(
        place=place,
        reset=reset,
        step=lambda inputs: step_of(variables, *inputs),
        read=read,
        lower=lambda inputs: step_of.lower(variables, *inputs),
        held=held,
    )


def _make_step(network: _Network, clip: float) -> Any:
    def loss_of_one(params: Any, image: jax.Array, label: jax.Array) -> jax.Array:
        logits = network.apply(params, image[None])
        return optax.softmax_cross_entropy_with_integer_labels(logits, label[None]).mean()

    def step(params: Any, images: jax.Array, labels: jax.Array) -> dict[str, Any]:
        gradients = jax.vmap(jax.grad(loss_of_one), (None, 0, 0))(params, images, labels)
        leaves, tree = jax.tree.flatten(gradients)
        clipped, _ = optax.per_example_global_norm_clip(leaves, clip)
        return {
            "norms": jax.vmap(optax.tree.norm)(gradients),
            "clipped_sum": jax.tree.unflatten(tree, clipped),
        }

    return step

"""Runs the layers of vision models in JAX's own Python: `run_layers.py IN.npz OUT.npz`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchcore.workloads.vision.layers.in_jax import (
    Layers,
    Noise,
    convolve_by_taps,
    drop_elements,
    drop_rows,
)


def main(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {}
    for mode in ("training", "inference"):
        layers = Layers(
            dtype=jnp.float32,
            training=mode == "training",
            rngs=nnx.Rngs(0),
            epsilon=0.25,
            momentum=0.3,
        )
        norm = layers.norm(given["value"].shape[-1])
        for name in ("scale", "bias", "mean", "var"):
            getattr(norm, name)[...] = jnp.asarray(given[name])
        found[f"{mode}_output"] = np.asarray(norm(jnp.asarray(given["value"])))
        found[f"{mode}_mean"], found[f"{mode}_var"] = map(np.asarray, (norm.mean, norm.var))
    ones = jnp.ones((2000, 3, 3, 1))
    for strength in (0.0, 1.0):
        noise = Noise(jnp.int32(0), jnp.float32(strength))
        for drop in (drop_elements, drop_rows):
            found[f"{drop.__name__}_{strength:.0f}"] = np.asarray(drop(ones, 0.2, noise))
    jax.config.update("jax_enable_x64", True)
    for kernel, stride, side in ((3, 1, 4), (3, 2, 7), (5, 1, 2), (5, 2, 6)):
        found |= _depthwise(kernel, stride, side)
    return found


def _depthwise(kernel: int, stride: int, side: int) -> dict[str, np.ndarray]:
    """Output and both gradients, by taps and by the convolution of every other precision."""
    rng = np.random.Generator(np.random.PCG64(kernel * 10 + stride))
    value = jnp.asarray(rng.standard_normal((2, side, side, 6)))
    layers = Layers(dtype=jnp.float64, training=True, rngs=nnx.Rngs(0))
    layer = layers.conv(6, 6, kernel=kernel, stride=stride, groups=6)
    weights = jnp.asarray(rng.standard_normal((kernel, kernel, 1, 6)))
    assert layer.conv_general_dilated is convolve_by_taps
    assert layers.conv(6, 6, kernel=3).conv_general_dilated is jax.lax.conv_general_dilated

    pads = [((kernel - 1) // 2,) * 2] * 2
    named = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "feature_group_count": 6}

    def run(convolve: Callable[..., Any]) -> list[jax.Array]:
        def total(weights: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
            output = convolve(value, weights, (stride, stride), pads, **named)
            return jnp.sin(output).sum(), output

        gradients, output = jax.grad(total, (0, 1), has_aux=True)(weights, value)
        return [output, *gradients]

    pairs = zip(run(convolve_by_taps), run(jax.lax.conv_general_dilated), strict=True)
    return {
        f"depthwise_{kernel}_{stride}_{name}_{by}": np.asarray(array)
        for name, pair in zip(("output", "weights", "value"), pairs, strict=True)
        for by, array in zip(("taps", "whole"), pair, strict=True)
    }


if __name__ == "__main__":
    with np.load(sys.argv[1]) as stored:
        np.savez(sys.argv[2], **main(dict(stored)))  # type: ignore[arg-type]

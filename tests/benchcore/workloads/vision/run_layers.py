"""Runs the layers of vision models in JAX's own Python: `run_layers.py IN.npz OUT.npz`."""

from __future__ import annotations

import sys

import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchcore.workloads.vision.layers.in_jax import Layers, Noise, drop_elements, drop_rows


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
    return found


if __name__ == "__main__":
    with np.load(sys.argv[1]) as stored:
        np.savez(sys.argv[2], **main(dict(stored)))  # type: ignore[arg-type]

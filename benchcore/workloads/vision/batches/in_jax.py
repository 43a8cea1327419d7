"""Batches of image files in JAX: sent to the device as uint8 and normalised there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchcore.workloads.vision.pixels import DEVIATION, MEAN

Staged = dict[str, np.ndarray]
OnDevice = dict[str, jax.Array]


def stage(images: np.ndarray, labels: np.ndarray) -> Staged:
    """A copy in host memory: `device_put` may still read it after it has returned."""
    return {"images": np.array(images), "labels": np.array(labels)}


def make_send(device: jax.Device) -> Any:
    """Returns a function that starts the copy of a staged batch to the device, without waiting."""
    return lambda staged: jax.device_put(staged, device)


def make_prepare(dtype: jnp.dtype) -> Any:
    """Returns the compiled normalisation: uint8 images to the case's dtype, labels unchanged."""

    def prepare(batch: OnDevice) -> OnDevice:
        scaled = batch["images"].astype(jnp.float32) / 255
        centred = (scaled - jnp.array(MEAN, jnp.float32)) / jnp.array(DEVIATION, jnp.float32)
        return {"images": centred.astype(dtype), "labels": batch["labels"]}

    return jax.jit(prepare)


def count_correct(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Number of images whose largest logit is at their label."""
    return (logits.argmax(axis=1) == labels).sum()

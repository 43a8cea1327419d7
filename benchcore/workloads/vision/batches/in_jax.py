"""Batches of a data set in JAX. Images are sent as uint8 and normalised on the device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchcore.program import ByName
from benchcore.workloads.vision.pixels import DEVIATION, MEAN

Staged = dict[str, np.ndarray]
OnDevice = dict[str, jax.Array]


def stage(batch: ByName) -> Staged:
    """A copy in host memory: `device_put` may still read it after it has returned."""
    return {name: np.array(array) for name, array in batch.items()}


def make_send(device: jax.Device) -> Any:
    """Returns a function that starts the copy of a staged batch to the device, without waiting."""
    return lambda staged: jax.device_put(staged, device)


def make_prepare(dtype: jnp.dtype) -> Any:
    """Returns the compiled normalisation: uint8 images to the case's dtype, labels unchanged."""

    def prepare(batch: OnDevice) -> OnDevice:
        scaled = batch["images"].astype(jnp.float32) / 255
        centred = (scaled - jnp.array(MEAN, jnp.float32)) / jnp.array(DEVIATION, jnp.float32)
        return {**batch, "images": centred.astype(dtype)}

    return jax.jit(prepare)


def count_correct(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Number of labels at which the largest logit is."""
    return (logits.argmax(axis=-1) == labels).sum()

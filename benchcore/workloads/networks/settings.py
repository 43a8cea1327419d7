"""The settings of a workload of these networks, besides `compile`."""

from __future__ import annotations

from collections.abc import Mapping

from benchcore.workloads.settings import (
    JAX_ATTENTION,
    JAX_OPTIONS,
    JAX_PER_SAMPLE,
    JAX_PROCESSES,
    STRATEGY,
    TORCH_ATTENTION,
    TORCH_IMAGE_OPTIONS,
    TORCH_IMAGE_PER_SAMPLE,
    TORCH_OPTIONS,
    TORCH_PER_SAMPLE,
    TORCH_TRAINING,
    Options,
)

_OF_JAX = {**JAX_OPTIONS, **JAX_PER_SAMPLE, **JAX_PROCESSES}
SETTINGS: Mapping[str, Options] = {
    "jax": _OF_JAX,
    "torch": {**TORCH_OPTIONS, **TORCH_TRAINING, **TORCH_PER_SAMPLE},
}
IMAGE_SETTINGS: Mapping[str, Options] = {
    "jax": _OF_JAX,
    "torch": {**TORCH_IMAGE_OPTIONS, **TORCH_IMAGE_PER_SAMPLE},
}
"""With convolutions, torch has a layout to choose."""
ATTENTION_SETTINGS: Mapping[str, Options] = {
    "jax": {**SETTINGS["jax"], **JAX_ATTENTION, **STRATEGY},
    "torch": {**SETTINGS["torch"], **TORCH_ATTENTION, **STRATEGY},
}

"""The convolution in JAX: one `jax.jit` of `lax.conv_general_dilated`, images NHWC."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.convolution.spec import Case
from benchcore.workloads.settings import JAX_COMPILE, read_settings

_TO_OWN = {"images": (0, 2, 3, 1), "cotangent": (0, 2, 3, 1), "weight": (2, 3, 1, 0)}


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the arrays on the device; a step computes the convolution or its weight gradient."""
    wanted = read_settings(settings, JAX_COMPILE)
    device = jax.devices(wanted.platform)[wanted.ordinal]
    padding = [(case.kernel // 2, case.kernel // 2)] * 2

    def convolve(images: jax.Array, weight: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            images,
            weight,
            (1, 1),
            padding,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=case.groups,
        )

    def differentiate(images: jax.Array, weight: jax.Array, cotangent: jax.Array) -> jax.Array:
        _, pull = jax.vjp(lambda each: convolve(images, each), weight)
        return pull(cotangent)[0]

    name, back = ("gradient", (3, 2, 0, 1)) if case.gradient else ("output", (0, 3, 1, 2))
    compiled = jax.jit(differentiate if case.gradient else convolve)
    return Program(
        place=lambda inputs: tuple(
            jax.device_put(np.ascontiguousarray(array.transpose(_TO_OWN[name])), device)
            for name, array in inputs.items()
        ),
        step=lambda inputs: compiled(*inputs),
        read=lambda output: {name: np.asarray(output).transpose(back)},
        lower=lambda inputs: compiled.lower(*inputs),
    )

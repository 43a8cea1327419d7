"""PyTorch's MNIST example in JAX: plain functions of `lax` and `jax.nn`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.mnist_cnn.spec import SETTINGS, SIZES, Case
from benchcore.workloads.networks import in_jax as networks
from benchcore.workloads.settings import JAX_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    widths = SIZES[case.size]
    pooled = (widths.channels[1], widths.pooled_side, widths.pooled_side)

    def to_own(name: str, array: np.ndarray) -> np.ndarray:
        """`fc1` takes features in the order of NHWC."""
        if name == "fc1.weight":
            array = array.reshape(-1, *pooled).transpose(0, 2, 3, 1).reshape(len(array), -1)
        return networks.to_own(name, array)

    def to_canonical(name: str, array: np.ndarray) -> np.ndarray:
        array = networks.to_canonical(name, array)
        if name == "fc1.weight":
            last = array.reshape(-1, *pooled[1:], pooled[0])
            array = np.ascontiguousarray(last.transpose(0, 3, 1, 2)).reshape(len(array), -1)
        return array

    network = networks.Network(forward=_forward, to_own=to_own, to_canonical=to_canonical)
    return networks.build(case, arrays, wanted, network)


def _forward(params: networks.Params, inputs: networks.Inputs) -> tuple[jax.Array, networks.Params]:
    value = inputs["images"]
    for name in ("conv1", "conv2"):
        kernel, layout = params[f"{name}.weight"], ("NHWC", "HWIO", "NHWC")
        value = lax.conv_general_dilated(value, kernel, (1, 1), "VALID", dimension_numbers=layout)
        value = jax.nn.relu(value + params[f"{name}.bias"])
    value = lax.reduce_window(value, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    value = value.reshape(len(value), -1)
    value = jax.nn.relu(value @ params["fc1.weight"] + params["fc1.bias"])
    return value @ params["fc2.weight"] + params["fc2.bias"], {}

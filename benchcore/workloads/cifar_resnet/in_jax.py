"""The CIFAR ResNet in JAX: plain functions of `lax` and `jax.nn`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.cifar_resnet.spec import (
    EPSILON,
    GROUPS,
    NORM_MOMENTUM,
    SETTINGS,
    Block,
    Case,
    has_batch_norms,
    list_blocks,
)
from benchcore.workloads.networks import in_jax as networks
from benchcore.workloads.settings import JAX_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])

    network = networks.Network(
        forward=_make_forward(case),
        at_rest=_make_forward(dataclasses.replace(case, use_case="infer")),
    )
    return networks.build(case, arrays, wanted, network)


def _make_forward(case: Case) -> Callable[..., tuple[jax.Array, networks.Params]]:
    def forward(
        params: networks.Params, inputs: networks.Inputs
    ) -> tuple[jax.Array, networks.Params]:
        network = _Forward(case, params)
        return network.run(inputs["images"]), network.statistics

    return forward


class _Forward:
    """One forward pass, which collects the new running statistics."""

    def __init__(self, case: Case, params: networks.Params) -> None:
        self._case, self._params = case, params
        self.statistics: networks.Params = {}

    def run(self, images: jax.Array) -> jax.Array:
        value = jax.nn.relu(self._norm("norm1", self._conv("conv1", images)))
        for block in list_blocks(self._case):
            value = self._block(block, value)
        pooled = value.mean(axis=(1, 2))
        return pooled @ self._params["fc.weight"] + self._params["fc.bias"]

    def _block(self, block: Block, value: jax.Array) -> jax.Array:
        name, shortcut = block.name, value
        value = self._conv(f"{name}.conv1", value, block.stride)
        value = jax.nn.relu(self._norm(f"{name}.norm1", value))
        value = self._norm(f"{name}.norm2", self._conv(f"{name}.conv2", value))
        if block.projects:
            projected = self._conv(f"{name}.projection", shortcut, block.stride)
            shortcut = self._norm(f"{name}.norm3", projected)
        return jax.nn.relu(value + shortcut)

    def _conv(self, name: str, value: jax.Array, stride: int = 1) -> jax.Array:
        kernel = self._params[f"{name}.weight"]
        edge, layout = len(kernel) // 2, ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            value, kernel, (stride, stride), [(edge, edge)] * 2, dimension_numbers=layout
        )

    def _norm(self, name: str, value: jax.Array) -> jax.Array:
        if not has_batch_norms(self._case):
            return self._scale(name, _normalise_groups(value))
        kept = [f"{name}.running_mean", f"{name}.running_var"]
        mean, var = (self._params[each] for each in kept)
        if self._case.use_case == "train":
            old, count = (mean, var), value.size // value.shape[-1]
            mean = value.mean(axis=(0, 1, 2))
            var = jnp.square(value - mean).mean(axis=(0, 1, 2))
            for each, before, now in zip(
                kept, old, (mean, var * (count / (count - 1))), strict=True
            ):
                self.statistics[each] = (1 - NORM_MOMENTUM) * before + NORM_MOMENTUM * now
        return self._scale(name, (value - mean) * lax.rsqrt(var + EPSILON))

    def _scale(self, name: str, value: jax.Array) -> jax.Array:
        return value * self._params[f"{name}.weight"] + self._params[f"{name}.bias"]


def _normalise_groups(value: jax.Array) -> jax.Array:
    grouped = value.reshape(*value.shape[:3], GROUPS, -1)
    mean = grouped.mean(axis=(1, 2, 4), keepdims=True)
    var = jnp.square(grouped - mean).mean(axis=(1, 2, 4), keepdims=True)
    return ((grouped - mean) * lax.rsqrt(var + EPSILON)).reshape(value.shape)

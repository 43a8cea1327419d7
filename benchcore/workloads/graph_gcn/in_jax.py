"""The graph convolutional network in JAX: `segment_sum`, or a product with a BCOO matrix."""

from __future__ import annotations

import jax
from jax.experimental import sparse

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.graph_gcn.spec import SETTINGS, SIZES, Case
from benchcore.workloads.networks import in_jax as networks
from benchcore.workloads.settings import JAX_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    aggregate = _scatter if wanted.aggregate == "scatter" else _multiply
    layers = SIZES[case.size].layers

    def forward(
        params: networks.Params, inputs: networks.Inputs
    ) -> tuple[jax.Array, networks.Params]:
        value = inputs["features"]
        edges = [inputs[name] for name in ("sources", "targets", "weights")]
        for index, (name, _, _) in enumerate(layers):
            value = jax.nn.relu(value) if index else value
            value = jax.vmap(aggregate)(value @ params[f"{name}.weight"], *edges)
            value = value + params[f"{name}.bias"]
        return value[:, 0], {}

    return networks.build(case, arrays, wanted, networks.Network(forward=forward))


def _scatter(
    value: jax.Array, sources: jax.Array, targets: jax.Array, weights: jax.Array
) -> jax.Array:
    messages = value[sources] * weights[:, None]
    return jax.ops.segment_sum(messages, targets, num_segments=len(value))


def _multiply(
    value: jax.Array, sources: jax.Array, targets: jax.Array, weights: jax.Array
) -> jax.Array:
    places = jax.numpy.stack([targets, sources], axis=1)
    return sparse.BCOO((weights, places), shape=(len(value), len(value))) @ value

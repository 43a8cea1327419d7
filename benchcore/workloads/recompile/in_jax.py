"""The stack of layers in JAX: `jax.jit` compiles a program for each length."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchcore.program import Arrays, ByName, Program, Settings
from benchcore.workloads.recompile.spec import SETTINGS, Case, join, make_new, split
from benchcore.workloads.settings import JAX_COMPILE, read_settings

Params = dict[str, jax.Array]
Batches = tuple[jax.Array, ...]


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the weights on the device; a step computes all batches of the next set."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    device = jax.devices(wanted.platform)[wanted.ordinal]

    def forward(params: Params, rows: jax.Array) -> jax.Array:
        value = rows
        for index, name in enumerate(case.layers):
            value = jnp.maximum(value, 0) if index else value
            value = value @ params[f"{name}.weight"] + params[f"{name}.bias"]
        return value

    def place_params(given: ByName) -> Params:
        """Weights as (in, out)."""
        return {
            name: jax.device_put(np.ascontiguousarray(array.T), device)
            for name, array in given.items()
        }

    def place(batches: list[np.ndarray]) -> Batches:
        return tuple(jax.device_put(each, device) for each in batches)

    compiled = jax.jit(forward)
    params = place_params(arrays.params)

    def reset(given: ByName) -> None:
        nonlocal params
        params = place_params(given)

    return Program(
        place=lambda inputs: place(split(case, inputs)),
        step=lambda batches: [compiled(params, each) for each in batches],
        reset=reset,
        read=lambda results: join(case, [np.asarray(each) for each in results]),
        lower=lambda batches: compiled.lower(params, batches[-1]),
        held=lambda batches: {
            "params": params,
            "inputs": batches,
            "output_dtype": batches[0].dtype,
            "function": compiled,
            "arguments": (params, batches[-1]),
        },
        new_shapes=lambda: [place([each]) for each in make_new(case, arrays.inputs)],
    )

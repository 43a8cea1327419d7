"""Gradients of single samples in JAX: `vmap(grad)`, of the whole batch or of chunks in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchcore.workloads.networks.case import NORM_FLOOR, Case
from benchcore.workloads.settings import BuildSettings

Params = dict[str, jax.Array]
Inputs = dict[str, jax.Array]
Loss = Callable[[Params, Inputs], tuple[jax.Array, Params]]


def make_per_sample(
    case: Case, wanted: BuildSettings, loss_of: Loss
) -> Callable[[Params, Inputs], dict[str, Any]]:
    """The norms of all samples' gradients, and the sum of them clipped to the case's norm."""

    def of_one(params: Params, example: Inputs) -> Params:
        batch = {name: array[None] for name, array in example.items()}
        return jax.grad(lambda given: loss_of(given, batch)[0])(params)

    def of_chunk(params: Params, inputs: Inputs) -> dict[str, Any]:
        gradients = jax.vmap(of_one, in_axes=(None, 0))(params, inputs)
        squares = [
            jnp.square(each).sum(axis=tuple(range(1, each.ndim))) for each in gradients.values()
        ]
        norms = jnp.sqrt(sum(squares))
        if case.reduction == "norms":
            return {"norms": norms}
        factors = jnp.minimum(1.0, case.clip / (norms + NORM_FLOOR))
        clipped = {
            name: (each * factors.reshape(-1, *[1] * (each.ndim - 1))).sum(axis=0)
            for name, each in gradients.items()
        }
        return {"norms": norms, "clipped_sum": clipped}

    if wanted.chunk == "whole" or int(wanted.chunk) >= case.batch:
        return of_chunk
    return _in_turn(of_chunk, int(wanted.chunk))


def _in_turn(
    of_chunk: Callable[[Params, Inputs], dict[str, Any]], size: int
) -> Callable[[Params, Inputs], dict[str, Any]]:
    """The same with only one chunk's gradients in memory: `lax.map` for the norms, and a sum that
    `lax.scan` carries on."""

    def function(params: Params, inputs: Inputs) -> dict[str, Any]:
        chunks = jax.tree.map(lambda each: each.reshape(-1, size, *each.shape[1:]), inputs)
        first = jax.tree.map(lambda each: each[0], chunks)
        if "clipped_sum" not in jax.eval_shape(of_chunk, params, first):
            norms = jax.lax.map(lambda chunk: of_chunk(params, chunk)["norms"], chunks)
            return {"norms": norms.reshape(-1)}

        def add(total: Params, chunk: Inputs) -> tuple[Params, jax.Array]:
            found = of_chunk(params, chunk)
            return jax.tree.map(jnp.add, total, found["clipped_sum"]), found["norms"]

        nothing = jax.tree.map(jnp.zeros_like, params)
        total, norms = jax.lax.scan(add, nothing, chunks)
        return {"norms": norms.reshape(-1), "clipped_sum": total}

    return function

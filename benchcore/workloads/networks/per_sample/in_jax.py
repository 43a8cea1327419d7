"""Per-sample gradients in JAX: `vmap(grad)`, of the whole batch or of chunks in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from benchcore.program import UnsupportedError
from benchcore.workloads.networks.case import BATCH, NORM_FLOOR, Case
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
        # A product: on a CPU faster than a sum of scaled copies.
        clipped = {name: jnp.tensordot(factors, each, axes=1) for name, each in gradients.items()}
        return {"norms": norms, "clipped_sum": clipped}

    if wanted.chunk == "whole" or int(wanted.chunk) >= case.batch // case.devices:
        return of_chunk
    return _in_turn(of_chunk, int(wanted.chunk))


def on_every_device(
    function: Callable[[Params, Inputs], dict[str, Any]], mesh: Mesh, *, whole: bool = False
) -> Callable[[Params, Inputs], dict[str, Any]]:
    """The function of each device's samples, and the sum over all devices. With `whole`, each
    device gets the norms of all samples, as torch's processes do; without, they stay spread.

    XLA's automatic partitioning gets the per-sample gradients wrong where there are
    convolutions (benchcore/known-issues.md).
    """
    if "shard_map" not in vars(jax):
        raise UnsupportedError(f"wanted jax.shard_map, which JAX {jax.__version__} lacks")

    def on_one(params: Params, inputs: Inputs) -> dict[str, Any]:
        found = function(params, inputs)
        if "clipped_sum" in found:
            found["clipped_sum"] = jax.lax.psum(found["clipped_sum"], BATCH)
        if whole:
            found["norms"] = jax.lax.all_gather(found["norms"], BATCH, tiled=True)
        return found

    def on_all(params: Params, inputs: Inputs) -> dict[str, Any]:
        norms = PartitionSpec() if whole else PartitionSpec(BATCH)
        specs = {"norms": norms, "clipped_sum": PartitionSpec()}
        first = jax.tree.map(lambda each: each[: each.shape[0] // mesh.size], inputs)
        out = {name: specs[name] for name in jax.eval_shape(function, params, first)}
        given = (PartitionSpec(), PartitionSpec(BATCH))
        mapped = jax.shard_map(on_one, mesh=mesh, in_specs=given, out_specs=out, check_vma=False)
        return mapped(params, inputs)

    return on_all


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

"""The transformer in JAX, with the attention of `jax.nn`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchcore.program import Arrays, Program
from benchcore.workloads.networks import in_jax as networks
from benchcore.workloads.networks.case import Case
from benchcore.workloads.networks.transformer.widths import (
    EPSILON,
    Widths,
    check_heads,
    group_heads,
    ungroup_heads,
)
from benchcore.workloads.settings import BuildSettings

Params = networks.Params


def build(case: Case, arrays: Arrays, wanted: BuildSettings, widths: Widths) -> Program:
    """Set up the transformer on the device in the settings."""

    groups = case.devices if wanted.strategy == "tensor" else 1
    check_heads(widths, groups)

    def forward(params: Params, inputs: networks.Inputs) -> tuple[jax.Array, Params]:
        return _forward(widths, wanted.attention, groups, params, inputs["tokens"]), {}

    def to_own(name: str, array: np.ndarray) -> np.ndarray:
        return networks.to_own(name, group_heads(widths, name, array, groups))

    def to_canonical(name: str, array: np.ndarray) -> np.ndarray:
        return ungroup_heads(widths, name, networks.to_canonical(name, array), groups)

    network = networks.Network(
        forward=forward, to_own=to_own, to_canonical=to_canonical, split=_find_split
    )
    return networks.build(case, arrays, wanted, network)


_SPLIT = {
    **dict.fromkeys(("qkv.weight", "fc1.weight", "head.weight"), 1),
    **dict.fromkeys(("qkv.bias", "fc1.bias", "head.bias", "projection.weight", "fc2.weight"), 0),
}
"""Matrices are (in, out)."""


def _find_split(name: str) -> int | None:
    return _SPLIT.get(".".join(name.split(".")[-2:]))


def _forward(
    widths: Widths, attention: str, groups: int, params: Params, tokens: jax.Array
) -> jax.Array:
    value = params["token_embedding.weight"][tokens] + params["position_embedding.weight"]
    for index in range(widths.blocks):
        name = f"blocks.{index}"
        packed = _linear(params, f"{name}.qkv", _norm(params, f"{name}.norm1", value))
        attended = _attend(widths, attention, groups, packed)
        value = value + _linear(params, f"{name}.projection", attended)
        hidden = _linear(params, f"{name}.fc1", _norm(params, f"{name}.norm2", value))
        value = value + _linear(params, f"{name}.fc2", jax.nn.gelu(hidden, approximate=False))
    value = _norm(params, "norm", value)
    return _linear(params, "head", value if widths.causal else value.mean(axis=1))


def _linear(params: Params, name: str, value: jax.Array) -> jax.Array:
    return value @ params[f"{name}.weight"] + params[f"{name}.bias"]


def _norm(params: Params, name: str, value: jax.Array) -> jax.Array:
    mean = value.mean(axis=-1, keepdims=True)
    var = jnp.square(value - mean).mean(axis=-1, keepdims=True)
    normal = (value - mean) * lax.rsqrt(var + EPSILON)
    return normal * params[f"{name}.weight"] + params[f"{name}.bias"]


def _attend(widths: Widths, attention: str, groups: int, packed: jax.Array) -> jax.Array:
    """JAX's own attention computes its softmax in float32 for any dtype, which the float64
    reference must not. With several groups, queries, keys and values of some heads are together."""
    kept = packed.shape[:2]
    heads = packed.reshape(*kept, groups, 3, widths.heads // groups, -1)
    query, key, value = (
        heads[:, :, :, index].reshape(*kept, widths.heads, -1) for index in range(3)
    )
    if packed.dtype != jnp.float64:
        by = None if attention == "usual" else "cudnn"
        found = jax.nn.dot_product_attention(
            query, key, value, is_causal=widths.causal, implementation=by
        )
        return found.reshape(*packed.shape[:2], -1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / query.shape[-1] ** 0.5
    if widths.causal:
        scores = jnp.where(jnp.tri(widths.tokens, dtype=bool), scores, -jnp.inf)
    found = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)
    return found.reshape(*packed.shape[:2], -1)

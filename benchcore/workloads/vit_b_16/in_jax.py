"""ViT-B/16 in Flax NNX, after torchvision's definition: pre-norm, packed projections, erf GELU, a
class token and learned positions. Works on NHWC images."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.vision import in_jax as vision
from benchcore.workloads.vision.case import CLASSES, Case
from benchcore.workloads.vision.layers.in_jax import Layers, Noise
from benchcore.workloads.vit_b_16.spec import (
    EPSILON,
    FEATURES,
    HEADS,
    HIDDEN,
    PATCH,
    SETTINGS,
    num_blocks,
    num_tokens,
)


def _norm(layers: Layers) -> nnx.LayerNorm:
    """A layer norm with a two-pass variance, as in torch: E[x^2] - E[x]^2 loses digits."""
    return nnx.LayerNorm(
        FEATURES,
        epsilon=EPSILON,
        use_fast_variance=False,
        dtype=layers.dtype,
        rngs=layers.rngs,
    )


def split_heads(packed: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(batch, token, 3 x features) to queries, keys and values (batch, token, head, feature)."""
    batch, tokens, _ = packed.shape
    query, key, value = jnp.split(packed, 3, axis=-1)
    shape = (batch, tokens, HEADS, FEATURES // HEADS)
    return query.reshape(shape), key.reshape(shape), value.reshape(shape)


def attend(
    query: jax.Array, key: jax.Array, value: jax.Array, attention: str = "usual"
) -> jax.Array:
    """Softmax attention of (batch, token, head, feature), by JAX's usual kernel or cuDNN's.

    JAX's own attention computes its softmax in float32 for any dtype. The float64 reference
    therefore writes it out, and the proof in float32 compares JAX's own with it.
    """
    if query.dtype != jnp.float64:
        by = None if attention == "usual" else "cudnn"
        return jax.nn.dot_product_attention(query, key, value, implementation=by)
    scores = jnp.einsum("bqhf,bkhf->bhqk", query, key) / math.sqrt(query.shape[-1])
    return jnp.einsum("bhqk,bkhf->bqhf", jax.nn.softmax(scores), value)


class SelfAttention(nnx.Module):
    """`torch.nn.MultiheadAttention` as self-attention: one product for queries, keys, values."""

    def __init__(self, *, layers: Layers) -> None:
        self.in_proj_weight = nnx.Param(jnp.zeros((FEATURES, 3 * FEATURES)))
        self.in_proj_bias = nnx.Param(jnp.zeros(3 * FEATURES))
        self.out_proj = layers.linear(FEATURES, FEATURES)
        self.dtype, self.attention = layers.dtype, layers.attention

    def __call__(self, value: jax.Array) -> jax.Array:
        """Maps (batch, token, feature) to the same shape."""
        weight, bias = self.in_proj_weight[...], self.in_proj_bias[...]
        packed = value.astype(self.dtype) @ weight.astype(self.dtype) + bias.astype(self.dtype)
        attended = attend(*split_heads(packed), self.attention)
        return self.out_proj(attended.reshape(value.shape))


class EncoderBlock(nnx.Module):
    """Norm before each half, and residual connections; attributes have torchvision's names."""

    def __init__(self, *, layers: Layers) -> None:
        self.ln_1 = _norm(layers)
        self.self_attention = SelfAttention(layers=layers)
        self.ln_2 = _norm(layers)
        self.tanh = "tanh-gelu" in layers.defects
        self.mlp = nnx.Dict(
            {"0": layers.linear(FEATURES, HIDDEN), "3": layers.linear(HIDDEN, FEATURES)}
        )

    def __call__(self, value: jax.Array) -> jax.Array:
        """Maps (batch, token, feature) to the same shape."""
        value = value + self.self_attention(self.ln_1(value))
        hidden = jax.nn.gelu(self.mlp["0"](self.ln_2(value)), approximate=self.tanh)
        return value + self.mlp["3"](hidden)


class Encoder(nnx.Module):
    """Adds the positions, then applies the blocks and a norm."""

    def __init__(self, case: Case, *, layers: Layers) -> None:
        self.names = [f"encoder_layer_{index}" for index in range(num_blocks(case))]
        self.pos_embedding = nnx.Param(jnp.zeros((1, num_tokens(case), FEATURES)))
        self.layers = nnx.Dict({name: EncoderBlock(layers=layers) for name in self.names})
        self.ln = _norm(layers)

    def __call__(self, value: jax.Array) -> jax.Array:
        """Maps (batch, token, feature) to the same shape."""
        value = value + self.pos_embedding[...].astype(value.dtype)
        for name in self.names:
            value = self.layers[name](value)
        return self.ln(value)


class VisionTransformer(nnx.Module):
    """Encodes patches and the class token; the class token's output gives the logits."""

    def __init__(self, case: Case, *, layers: Layers) -> None:
        self.class_token = nnx.Param(jnp.zeros((1, 1, FEATURES)))
        self.conv_proj = nnx.Conv(
            3,
            FEATURES,
            (PATCH, PATCH),
            strides=(PATCH, PATCH),
            padding="VALID",
            dtype=layers.dtype,
            rngs=layers.rngs,
        )
        self.encoder = Encoder(case, layers=layers)
        self.heads = nnx.Dict({"head": layers.linear(FEATURES, CLASSES)})

    def __call__(self, images: jax.Array, noise: Noise | None) -> jax.Array:
        """Images (batch, height, width, 3) to logits (batch, classes). It has no dropout."""
        patches = self.conv_proj(images)
        patches = patches.reshape(patches.shape[0], -1, FEATURES)
        first = jnp.broadcast_to(self.class_token[...], (patches.shape[0], 1, FEATURES))
        value = self.encoder(jnp.concatenate([first.astype(patches.dtype), patches], axis=1))
        return self.heads["head"](value[:, 0])


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    return vision.build(
        case,
        arrays,
        settings,
        make=lambda layers: VisionTransformer(case, layers=layers),
        options=SETTINGS["jax"],
    )

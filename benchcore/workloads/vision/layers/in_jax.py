"""Layers of Flax NNX with torch's conventions; images are (batch, height, width, features)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from benchcore.workloads.tensors.in_jax import widen
from benchcore.workloads.vision.inverted_residual import Block


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Makes layers that compute in `dtype`, whatever the dtype of their parameters."""

    dtype: jnp.dtype
    training: bool
    rngs: nnx.Rngs
    epsilon: float = 1e-5
    momentum: float = 0.1
    """Epsilon and momentum of the batch norms: torch's defaults."""
    defects: frozenset[str] = frozenset()
    """Deliberate defects, for the defect study."""
    attention: str = "usual"
    """As the setting of that name."""

    def conv(
        self,
        inputs: int,
        outputs: int,
        *,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        bias: bool = False,
    ) -> nnx.Conv:
        """Padded equally on both sides, as in torch: 'SAME' pads on the right at stride 2."""
        pad = (kernel - 1) // 2
        symmetric = ((pad, pad), (pad, pad))
        return nnx.Conv(
            inputs,
            outputs,
            (kernel, kernel),
            strides=(stride, stride),
            padding="SAME" if "same-padding" in self.defects else symmetric,
            feature_group_count=groups,
            use_bias=bias,
            dtype=self.dtype,
            rngs=self.rngs,
            conv_general_dilated=convolve_by_taps
            if self.dtype == jnp.float64 and groups == inputs == outputs
            else jax.lax.conv_general_dilated,
        )

    def norm(self, features: int) -> BatchNorm:
        """Over the last axis."""
        return BatchNorm(
            features,
            epsilon=self.epsilon,
            momentum=self.momentum,
            training=self.training and "frozen-batch-norm" not in self.defects,
            dtype=self.dtype,
        )

    def conv_norm(
        self, inputs: int, outputs: int, *, kernel: int, stride: int = 1, groups: int = 1
    ) -> nnx.List:
        """A convolution and its batch norm, to be called with `chain`."""
        conv = self.conv(inputs, outputs, kernel=kernel, stride=stride, groups=groups)
        return nnx.List([conv, self.norm(outputs)])

    def linear(self, inputs: int, outputs: int) -> nnx.Linear:
        return nnx.Linear(inputs, outputs, dtype=self.dtype, rngs=self.rngs)


def convolve_by_taps(
    value: jax.Array,
    kernel: jax.Array,
    strides: tuple[int, int],
    padding: Sequence[tuple[int, int]],
    **_unused: Any,
) -> jax.Array:
    """A depthwise convolution as the sum of its taps. `value` is (batch, height, width, features),
    `kernel` (height, width, 1, features).

    For float64, for which XLA has no depthwise CPU kernel: it turns 480 depthwise features into a
    dense convolution of 480 features, which takes a thousand times as long.
    """
    value = jnp.pad(value, ((0, 0), *padding, (0, 0)))
    taps = jnp.stack(jnp.meshgrid(*map(jnp.arange, kernel.shape[:2]), indexing="ij"), -1)
    batch, *sides, features = value.shape
    spans = [side - tap + 1 for side, tap in zip(sides, kernel.shape, strict=False)]

    def add(total: jax.Array, each: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        (high, wide), weights = each
        window = jax.lax.dynamic_slice(value, (0, high, wide, 0), (batch, *spans, features))
        return total + window[:, :: strides[0], :: strides[1]] * weights, None

    shape = (batch, *(-(-span // stride) for span, stride in zip(spans, strides, strict=True)))
    pairs = taps.reshape(-1, 2), kernel.reshape(-1, features)
    return jax.lax.scan(add, jnp.zeros((*shape, features), value.dtype), pairs)[0]


class BatchNorm(nnx.Module):
    """As `torch.nn.BatchNorm2d`: training normalises with the batch's own biased variance, and
    moves the running one towards the unbiased one by `momentum` (torch's: 0.1 of the new)."""

    def __init__(
        self,
        features: int,
        *,
        epsilon: float,
        momentum: float,
        training: bool,
        dtype: jnp.dtype,
    ) -> None:
        self.scale = nnx.Param(jnp.ones(features))
        self.bias = nnx.Param(jnp.zeros(features))
        self.mean = nnx.BatchStat(jnp.zeros(features))
        self.var = nnx.BatchStat(jnp.ones(features))
        self.epsilon, self.momentum = epsilon, momentum
        self.training, self.dtype = training, dtype

    def __call__(self, value: jax.Array) -> jax.Array:
        """Normalise (batch, height, width, features) in at least float32; return the dtype."""
        value = widen(value)
        mean, var = self.mean[...], self.var[...]
        if self.training:
            mean, var = measure(value)
            count = value.size // value.shape[-1]
            self._move(self.mean, mean)
            self._move(self.var, unbias(var, count))
        factor = jax.lax.rsqrt(widen(var) + self.epsilon) * self.scale[...]
        return ((value - mean) * factor + self.bias[...]).astype(self.dtype)

    def _move(self, running: nnx.Variable, observed: jax.Array) -> None:
        """Rounded once, to the dtype of the statistic."""
        kept = running[...]
        moved = (1 - self.momentum) * widen(kept) + self.momentum * observed
        running[...] = jax.lax.stop_gradient(moved).astype(kept.dtype)


def measure(value: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and biased variance of each feature, in two passes: E[x^2] - E[x]^2 loses digits."""
    axes = tuple(range(value.ndim - 1))
    mean = value.mean(axes)
    return mean, jnp.square(value - mean).mean(axes)


def unbias(var: jax.Array, count: int) -> jax.Array:
    """The unbiased variance, from the biased one of `count` values."""
    return var * (count / (count - 1))


def record(network: nnx.Module, *given: Any) -> dict[str, jax.Array]:
    """Call the network; the output of each layer with arrays of its own, by path, in call order."""
    paths = {
        id(layer): ".".join(map(str, path))
        for path, layer in nnx.iter_modules(network)
        if path and any(isinstance(each, nnx.Variable) for each in vars(layer).values())
    }
    kinds = {type(layer) for _, layer in nnx.iter_modules(network) if id(layer) in paths}
    found: dict[str, jax.Array] = {}

    def watch(call: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        def watched(layer: nnx.Module, *args: Any) -> jax.Array:
            value = call(layer, *args)
            if id(layer) in paths:
                found[paths[id(layer)]] = value
            return value

        return watched

    with contextlib.ExitStack() as undo:
        for kind in kinds:
            undo.callback(setattr, kind, "__call__", kind.__call__)
            kind.__call__ = watch(kind.__call__)
        network(*given)
    return found


class Noise:
    """The random numbers of training step number `step`. `strength` 0 drops nothing, 1 drops at the
    layers' rates. A network that drops nothing draws no random numbers."""

    def __init__(self, step: jax.Array, strength: jax.Array) -> None:
        self._step, self._strength = step, strength
        self.rates: list[float] = []
        """Rates of the draws so far, in order."""

    def drop(self, value: jax.Array, rate: float, shape: tuple[int, ...]) -> jax.Array:
        """Zero parts of the value and scale up the rest; one draw for each element of `shape`."""
        self.rates.append(rate)
        key = jax.random.fold_in(jax.random.key(0), self._step)
        keep = 1 - rate * self._strength
        kept = jax.random.bernoulli(jax.random.fold_in(key, len(self.rates)), keep, shape)
        return value * (kept / keep).astype(value.dtype)


def drop_elements(value: jax.Array, rate: float, noise: Noise | None) -> jax.Array:
    """`torch.nn.Dropout`; none in inference."""
    return value if noise is None else noise.drop(value, rate, value.shape)


def drop_rows(value: jax.Array, rate: float, noise: Noise | None) -> jax.Array:
    """`torchvision.ops.StochasticDepth` in mode "row": drops whole images."""
    if noise is None or rate == 0.0:
        return value
    return noise.drop(value, rate, (value.shape[0],) + (1,) * (value.ndim - 1))


def chain(layers: nnx.List, value: jax.Array) -> jax.Array:
    """Apply the layers one after the other."""
    for layer in layers:
        value = layer(value)
    return value


_ACTIVATIONS = {"relu": jax.nn.relu, "silu": jax.nn.silu, "hard_swish": jax.nn.hard_swish}


class SqueezeExcitation(nnx.Module):
    """Scales each channel by a gate computed from the image's means by two 1x1 convolutions."""

    def __init__(self, block: Block, *, layers: Layers) -> None:
        self.fc1 = layers.conv(block.expanded, block.squeezed, kernel=1, bias=True)
        self.fc2 = layers.conv(block.squeezed, block.expanded, kernel=1, bias=True)
        hard = block.gate == "hard_sigmoid"
        self.activation = jax.nn.relu if hard else jax.nn.silu
        plain = "plain-sigmoid" in layers.defects
        self.gate = jax.nn.hard_sigmoid if hard and not plain else jax.nn.sigmoid

    def __call__(self, value: jax.Array) -> jax.Array:
        """(batch, high, wide, features), scaled."""
        mean = value.mean(axis=(1, 2), keepdims=True)
        return value * self.gate(self.fc2(self.activation(self.fc1(mean))))


class InvertedResidual(nnx.Module):
    """1x1 expansion, depthwise convolution, squeeze-and-excitation, 1x1 projection (no activation);
    attributes have torchvision's names."""

    def __init__(self, block: Block, *, layers: Layers) -> None:
        wide = block.expanded
        self.spec = block
        self.block = nnx.List([])
        if block.expands:
            self.block.append(layers.conv_norm(block.inputs, wide, kernel=1))
        self.block.append(
            layers.conv_norm(wide, wide, kernel=block.kernel, stride=block.stride, groups=wide)
        )
        if block.squeezed:
            self.block.append(SqueezeExcitation(block, layers=layers))
        self.block.append(layers.conv_norm(wide, block.outputs, kernel=1))

    def __call__(self, value: jax.Array, noise: Noise | None) -> jax.Array:
        """(batch, height, width, inputs) to (batch, height / stride, width / stride, outputs)."""
        around, activation = value, _ACTIVATIONS[self.spec.activation]
        *inner, projection = self.block
        for layer in inner:
            squeezes = isinstance(layer, SqueezeExcitation)
            value = layer(value) if squeezes else activation(chain(layer, value))
        value = chain(projection, value)
        if not self.spec.is_residual:
            return value
        return drop_rows(value, self.spec.drop_rate, noise) + around

"""ResNet-50 v1.5 in Flax NNX, written after torchvision's definition; images are NHWC inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.resnet50.spec import CLASSES, EXPANSION, SETTINGS, STAGES, Case, Stage
from benchcore.workloads.settings import JAX_COMPILE, read_settings


@dataclass(frozen=True, kw_only=True)
class _Layers:
    """Makes layers that compute in `dtype`."""

    dtype: jnp.dtype
    rngs: nnx.Rngs

    def conv(self, inputs: int, outputs: int, *, kernel: int, stride: int) -> nnx.Conv:
        """Padded alike on both sides, as torch does: 'SAME' pads on the right at stride 2."""
        pad = (kernel - 1) // 2
        return nnx.Conv(
            inputs,
            outputs,
            (kernel, kernel),
            strides=(stride, stride),
            padding=((pad, pad), (pad, pad)),
            use_bias=False,
            dtype=self.dtype,
            rngs=self.rngs,
        )

    def norm(self, features: int) -> nnx.BatchNorm:
        """The running statistics alone, as in inference."""
        return nnx.BatchNorm(
            features, use_running_average=True, epsilon=1e-5, dtype=self.dtype, rngs=self.rngs
        )

    def linear(self, inputs: int, outputs: int) -> nnx.Linear:
        """With a bias."""
        return nnx.Linear(inputs, outputs, dtype=self.dtype, rngs=self.rngs)


class Bottleneck(nnx.Module):
    """1x1, 3x3 (which carries the stride: v1.5), 1x1, and the way around them."""

    def __init__(self, inputs: int, width: int, *, stride: int, layers: _Layers) -> None:
        outputs = width * EXPANSION
        self.conv1 = layers.conv(inputs, width, kernel=1, stride=1)
        self.bn1 = layers.norm(width)
        self.conv2 = layers.conv(width, width, kernel=3, stride=stride)
        self.bn2 = layers.norm(width)
        self.conv3 = layers.conv(width, outputs, kernel=1, stride=1)
        self.bn3 = layers.norm(outputs)
        self.downsample = nnx.List([])  # the identity, where the shapes allow it
        if inputs != outputs:
            self.downsample.append(layers.conv(inputs, outputs, kernel=1, stride=stride))
            self.downsample.append(layers.norm(outputs))

    def __call__(self, value: jax.Array) -> jax.Array:
        """(batch, high, wide, inputs) to (batch, high / stride, wide / stride, outputs)."""
        around = value
        for layer in self.downsample:
            around = layer(around)
        value = nnx.relu(self.bn1(self.conv1(value)))
        value = nnx.relu(self.bn2(self.conv2(value)))
        return nnx.relu(self.bn3(self.conv3(value)) + around)


class ResNet50(nnx.Module):
    """Attributes bear torchvision's names, so that a path in the state is a canonical name."""

    def __init__(self, *, layers: _Layers) -> None:
        self.conv1 = layers.conv(3, 64, kernel=7, stride=2)
        self.bn1 = layers.norm(64)
        inputs = 64
        for stage in STAGES:
            setattr(self, stage.name, _stage(stage, inputs, layers))
            inputs = stage.width * EXPANSION
        self.fc = layers.linear(inputs, CLASSES)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Images (batch, high, wide, 3) to logits (batch, classes)."""
        value = nnx.relu(self.bn1(self.conv1(images)))
        value = nnx.max_pool(value, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        for stage in STAGES:
            for block in getattr(self, stage.name):
                value = block(value)
        return self.fc(value.mean(axis=(1, 2)))


def _stage(stage: Stage, inputs: int, layers: _Layers) -> nnx.List:
    first = Bottleneck(inputs, stage.width, stride=stage.stride, layers=layers)
    outputs = stage.width * EXPANSION
    rest = [
        Bottleneck(outputs, stage.width, stride=1, layers=layers) for _ in range(stage.blocks - 1)
    ]
    return nnx.List([first, *rest])


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set the network up on the device that the settings name.

    The state goes into the compiled function as a flat list of arrays: arguments, so that nothing
    is folded into the program, and a list, because flattening an NNX state takes Python time.
    """
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    held_in = jnp.bfloat16 if case.precision == "bf16" else jnp.float32
    device = jax.devices(wanted.platform)[wanted.ordinal]
    graph, abstract = nnx.split(nnx.eval_shape(lambda: _make_model(case)))
    leaves, treedef = jax.tree.flatten(_fill(abstract, arrays.params))
    leaves = [leaf.astype(held_in) for leaf in jax.device_put(leaves, device)]
    images = arrays.inputs["images"].transpose(0, 2, 3, 1)
    images = jax.device_put(np.ascontiguousarray(images), device).astype(held_in)

    def forward(leaves: list[jax.Array], images: jax.Array) -> jax.Array:
        return nnx.merge(graph, jax.tree.unflatten(treedef, leaves))(images)

    compiled = jax.jit(forward)
    return Program(
        step=lambda: compiled(leaves, images),
        lower=lambda: compiled.lower(leaves, images),
        evidence=lambda: {"logits": np.asarray(compiled(leaves, images), dtype=np.float32)},
        held=lambda: {
            "params": leaves,
            "inputs": images,
            "output_dtype": jax.eval_shape(forward, leaves, images).dtype,
            "function": compiled,
            "arguments": (leaves, images),
        },
    )


def _make_model(case: Case) -> ResNet50:
    """Computes in bfloat16 where the case says so, whatever its parameters are held in."""
    computed = jnp.bfloat16 if case.precision.startswith("bf16") else jnp.float32
    return ResNet50(layers=_Layers(dtype=computed, rngs=nnx.Rngs(0)))


_LEAF_NAMES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}


def _fill(abstract: nnx.State, params: Mapping[str, np.ndarray]) -> nnx.State:
    """The state with the canonical arrays in its own layout, found by torchvision's names.

    Raises ValueError unless every array is used exactly once and every shape fits.
    """
    places = nnx.to_flat_state(abstract)
    names = [_canonical_name(path) for path, _ in places]
    if sorted(names) != sorted(params):
        raise ValueError(
            f"resnet50 lacks {sorted(set(names) - set(params))} and has no place for "
            f"{sorted(set(params) - set(names))}; name the arrays as "
            "torchvision.models.resnet50().state_dict() does"
        )
    filled = []
    for name, (path, leaf) in zip(names, places, strict=True):
        array = _channels_last(params[name])
        if array.shape != leaf.shape:
            raise ValueError(
                f"{name!r} should become {leaf.shape}, got {array.shape} from "
                f"{params[name].shape}; give it in torch's layout"
            )
        filled.append((path, leaf.replace(array)))
    return nnx.from_flat_state(filled)


def _canonical_name(path: tuple[str | int, ...]) -> str:
    *owner, leaf = path
    return ".".join([*map(str, owner), _LEAF_NAMES[str(leaf)]])


def _channels_last(array: np.ndarray) -> np.ndarray:
    """(out, in, high, wide) to (high, wide, in, out), (out, in) to (in, out); vectors stay."""
    axes = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}[array.ndim]
    return np.ascontiguousarray(array.transpose(axes))

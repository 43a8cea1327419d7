"""Copies a Flax NNX network and its weights to the device, and back under torchvision's names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchcore.program import REFERENCE, Arrays
from benchcore.workloads.settings import BuildSettings
from benchcore.workloads.tensors.in_jax import to_host
from benchcore.workloads.vision.case import Case
from benchcore.workloads.vision.layers.in_jax import Layers, Noise

Leaves = list[jax.Array]
Inputs = Mapping[str, Any]
"""`images` (batch, high, wide, 3), and in training `labels` (batch,)."""
Network = Callable[[jax.Array, Noise | None], jax.Array]
"""An NNX module: maps images (batch, height, width, 3) to logits (batch, classes)."""
MakeNetwork = Callable[[Layers], Network]


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A network on the device, split into its graph, which is compiled, and its arrays.

    Compiled functions take the arrays as flat lists: as arguments, so that no array is folded into
    the program, and as lists, because flattening an NNX state takes Python time.
    """

    graph: Any
    at_rest: Callable[[], Any]
    """The graph of the same network in inference mode."""
    params: _Group
    statistics: _Group
    device: jax.Device
    donate: bool
    defects: frozenset[str]
    images_dtype: jnp.dtype

    def merge(self, params: Leaves, statistics: Leaves) -> Any:
        states = self.params.unflatten(params), self.statistics.unflatten(statistics)
        return nnx.merge(self.graph, *states)

    def place_inputs(self, inputs: Mapping[str, np.ndarray]) -> Inputs:
        """Images (batch, high, wide, 3) and labels; on the device, unless that is wrong."""
        images = np.ascontiguousarray(inputs["images"].transpose(0, 2, 3, 1))
        if "image-from-host" in self.defects:
            return {**inputs, "images": images}
        placed = jax.device_put({**inputs, "images": images}, self.device)
        return {**placed, "images": placed["images"].astype(self.images_dtype)}

    def fetch(self, inputs: Inputs) -> Inputs:
        """What a step computes with: its inputs, or a copy of images that are on the host."""
        if "image-from-host" not in self.defects:
            return inputs
        images = jax.device_put(inputs["images"], self.device).astype(self.images_dtype)
        return {**inputs, "images": images}


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Variables of one kind: their canonical names and arrays, in the order of the leaves."""

    names: tuple[str, ...]
    treedef: Any
    state: nnx.State
    dtype: jnp.dtype
    device: jax.Device

    def place(self, params: Mapping[str, np.ndarray]) -> Leaves:
        """A fresh copy on the device: donation must never reach the originals."""
        leaves = [array.astype(self.dtype, copy=False) for array in fill(self.state, params)]
        return jax.device_put(leaves, self.device, may_alias=False)

    def unflatten(self, leaves: Leaves) -> Any:
        """The NNX state."""
        return jax.tree.unflatten(self.treedef, leaves)

    def to_canonical(self, leaves: Leaves) -> dict[str, np.ndarray]:
        """Host copies under canonical names in canonical layout."""
        pairs = zip(self.names, leaves, strict=True)
        return {name: to_torch(to_host(leaf)) for name, leaf in pairs}


def place(case: Case, arrays: Arrays, wanted: BuildSettings, make: MakeNetwork) -> Placed:
    """The network that `make` returns, in the case's dtype. Raises ValueError if the arrays belong
    to another network."""
    dtype = {"bf16": jnp.bfloat16, REFERENCE: jnp.float64}.get(case.precision, jnp.float32)
    device = jax.devices(wanted.platform)[wanted.ordinal]
    graph, *states = nnx.split(
        nnx.eval_shape(lambda: make(_layers(case, wanted))), nnx.Param, nnx.BatchStat
    )
    check_names([name for state in states for name in _names(state)], arrays.params)
    params, statistics = (
        _Group(
            names=_names(state),
            treedef=jax.tree.structure(state),
            state=state,
            dtype=dtype,
            device=device,
        )
        for state in states
    )
    inferring = dataclasses.replace(case, use_case="infer")
    return Placed(
        graph=graph,
        at_rest=lambda: nnx.split(nnx.eval_shape(lambda: make(_layers(inferring, wanted))), ...)[0],
        params=params,
        statistics=statistics,
        device=device,
        donate=wanted.donate == "yes",
        defects=wanted.defects,
        images_dtype=dtype,
    )


def _layers(case: Case, wanted: BuildSettings) -> Layers:
    computed = jnp.bfloat16 if case.precision.startswith("bf16") else jnp.float32
    computed = jnp.float64 if case.precision == REFERENCE else computed
    training = case.use_case == "train"
    return Layers(
        dtype=computed,
        training=training,
        rngs=nnx.Rngs(0),
        defects=wanted.defects,
        attention=wanted.attention,
    )


_LEAF_NAMES = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}
"""torch's names of NNX's variables; all others have the same name on both sides."""


def _names(state: nnx.State) -> tuple[str, ...]:
    """Canonical names: attributes have torchvision's names, so a path in the state is one."""
    paths = [path for path, _ in nnx.to_flat_state(state)]
    return tuple(
        ".".join([*map(str, owner), _LEAF_NAMES.get(str(leaf), str(leaf))])
        for *owner, leaf in paths
    )


def check_names(names: list[str], params: Mapping[str, np.ndarray]) -> None:
    """Check that arrays and variables correspond one to one. Raises ValueError if not."""
    if sorted(names) != sorted(params):
        raise ValueError(
            f"the network lacks {sorted(set(names) - set(params))} and has no variables for "
            f"{sorted(set(params) - set(names))}; name the arrays as in the state_dict() of "
            "torchvision's model"
        )


def fill(state: nnx.State, params: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The canonical arrays in the layout of the state's leaves, and in their order.

    Raises ValueError if a shape doesn't match.
    """
    filled = []
    for name, leaf in zip(_names(state), jax.tree.leaves(state), strict=True):
        array = from_torch(params[name])
        if array.shape != leaf.shape:
            raise ValueError(
                f"wanted {name!r} as {leaf.shape}, got {array.shape} from "
                f"{params[name].shape}; pass it in torch's layout"
            )
        filled.append(array)
    return filled


def from_torch(array: np.ndarray) -> np.ndarray:
    """(out, in, high, wide) to (high, wide, in, out), (out, in) to (in, out); others unchanged."""
    axes = {4: (2, 3, 1, 0), 2: (1, 0)}.get(array.ndim, range(array.ndim))
    return np.ascontiguousarray(array.transpose(axes))


def to_torch(array: np.ndarray) -> np.ndarray:
    """The inverse of `from_torch`."""
    axes = {4: (3, 2, 0, 1), 2: (1, 0)}.get(array.ndim, range(array.ndim))
    return np.ascontiguousarray(array.transpose(axes))

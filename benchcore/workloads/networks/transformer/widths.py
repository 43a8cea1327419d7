"""A transformer with norms before its blocks: widths, shapes and products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchcore.program import UnsupportedError
from benchcore.workloads.contract import Spec, TrainedTexts
from benchcore.workloads.networks.case import Case, MakeInputs, Network, Product
from benchcore.workloads.networks.training_arrays import training_arrays
from benchcore.workloads.proof_inputs.large_values import enlarge_far, shrink_first
from benchcore.workloads.settings import Options

EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True)
class Widths:
    """`outputs` are classes, or with `causal` the next token's logits at every place."""

    vocabulary: int
    tokens: int
    features: int
    heads: int
    blocks: int
    outputs: int
    causal: bool

    @property
    def hidden(self) -> int:
        """Width of the two-layer perceptrons."""
        return 4 * self.features

    def trains_on(self) -> TrainedTexts:
        """The texts that a network of these widths can train on."""
        return TrainedTexts(
            tokens=self.tokens,
            vocabulary=self.vocabulary,
            classes=None if self.causal else self.outputs,
        )


def list_shapes(widths: Widths) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter, in the torch module's order."""
    features = widths.features
    shapes: dict[str, tuple[int, ...]] = {
        "token_embedding.weight": (widths.vocabulary, features),
        "position_embedding.weight": (widths.tokens, features),
    }
    for index in range(widths.blocks):
        name = f"blocks.{index}"
        shapes |= _norm(f"{name}.norm1", features)
        shapes |= _linear(f"{name}.qkv", features, 3 * features)
        shapes |= _linear(f"{name}.projection", features, features)
        shapes |= _norm(f"{name}.norm2", features)
        shapes |= _linear(f"{name}.fc1", features, widths.hidden)
        shapes |= _linear(f"{name}.fc2", widths.hidden, features)
    return shapes | _norm("norm", features) | _linear("head", features, widths.outputs)


def _norm(name: str, features: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (features,), f"{name}.bias": (features,)}


def _linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def list_products(widths: Widths) -> Iterator[Product]:
    """Products of one example. Attention's masked half counts: no kernel here surely skips it."""
    tokens, features = widths.tokens, widths.features
    for _ in range(widths.blocks):
        yield Product(macs=tokens * features * (4 * features + 2 * widths.hidden))
        yield Product(macs=2 * tokens * tokens * features)
    yield Product(macs=(tokens if widths.causal else 1) * features * widths.outputs)


def check_heads(widths: Widths, devices: int) -> None:
    """Raises UnsupportedError where devices can't share the heads evenly (strategy `tensor`)."""
    if widths.heads % devices:
        raise UnsupportedError(
            f"wanted as many of {widths.heads} heads on each of {devices} devices; choose a case "
            "on fewer devices, or another strategy"
        )


def group_heads(widths: Widths, name: str, array: np.ndarray, devices: int) -> np.ndarray:
    """The rows of `qkv` by device: (device, query or key or value, head, feature)."""
    return _regroup(widths, name, array, (3, devices))


def ungroup_heads(widths: Widths, name: str, array: np.ndarray, devices: int) -> np.ndarray:
    """The inverse of `group_heads`."""
    return _regroup(widths, name, array, (devices, 3))


def _regroup(widths: Widths, name: str, array: np.ndarray, outer: tuple[int, int]) -> np.ndarray:
    if ".qkv." not in name:
        return array
    grouped = array.reshape(*outer, -1, widths.features // widths.heads, *array.shape[1:])
    return np.ascontiguousarray(grouped.swapaxes(0, 1)).reshape(array.shape)


FAR = {"position_embedding": 1e2, "blocks.0.projection.bias": 1e3, "blocks.0.fc2.bias": 2e4}
"""A thousand deviations of what they are added to, or some thousands where there are many
features."""
enlarge = partial(enlarge_far, usual=("norm", "projection.bias", "fc2.bias"), far=FAR)
shrink = partial(shrink_first, first=("embedding",))
"""The proof inputs with large and with small values of a transformer in these names."""


def make_network(sizes: Mapping[str, Widths], make_inputs: MakeInputs) -> Network:
    """A transformer in these sizes, by `Case.size`."""
    return Network(
        shapes=lambda case: list_shapes(sizes[case.size]),
        products=lambda case: list_products(sizes[case.size]),
        make_inputs=make_inputs,
        gradient_tolerance=2e-5,
    )


def make_spec(
    network: Network,
    sizes: Mapping[str, Widths],
    cases: Mapping[str, Case],
    settings: Mapping[str, Options],
) -> Spec:
    """The spec of a workload that is such a transformer."""
    return network.make_spec(
        cases,
        settings,
        enlarge=enlarge,
        shrink=shrink,
        make_training_arrays=training_arrays,
        trains_on=lambda case: sizes[case.size].trains_on(),
    )

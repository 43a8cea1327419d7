"""A graph convolutional network (Kipf and Welling, 2017) on sampled neighbourhoods.

An example is the sampled neighbourhood of one labelled node, as in GraphSAGE's mini-batches: the
nodes' features, the edges with self-loops, and their weights 1 / sqrt(degrees). The logits are node
0's. So a batch, a sample's gradient and data parallelism mean what they mean elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchcore.program import ByName
from benchcore.workloads.contract import TrainedGraphs
from benchcore.workloads.networks.case import Case, Network, Product, make_cases
from benchcore.workloads.networks.settings import SETTINGS as NETWORK_SETTINGS
from benchcore.workloads.networks.training_arrays import training_arrays
from benchcore.workloads.proof_inputs.kinks import choose_spread, leave_in_chain
from benchcore.workloads.settings import AGGREGATE, Options

SETTINGS: Mapping[str, Options] = {
    framework: {**options, **AGGREGATE} for framework, options in NETWORK_SETTINGS.items()
}


@dataclass(frozen=True, kw_only=True)
class Widths:
    """Nodes of a neighbourhood, edges to each of them, and the features of each layer."""

    nodes: int
    degree: int
    features: tuple[int, ...]

    @property
    def layers(self) -> list[tuple[str, int, int]]:
        """(name, inputs, outputs), first to last."""
        sizes = enumerate(pairwise(self.features), start=1)
        return [(f"gcn{index}", inputs, outputs) for index, (inputs, outputs) in sizes]


SIZES: Mapping[str, Widths] = {
    "tiny": Widths(nodes=10, degree=3, features=(12, 8, 5)),
    "base": Widths(nodes=64, degree=8, features=(128, 64, 10)),
    "large": Widths(nodes=256, degree=16, features=(602, 256, 256, 41)),
}
"""`large` has the features and classes of Reddit in GraphSAGE."""


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for name, inputs, outputs in SIZES[case.size].layers:
        shapes |= {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
    return shapes


def _products(case: Case) -> Iterator[Product]:
    """The dense ones. Sums of messages are bound by memory, and a sparse product is one of them."""
    widths = SIZES[case.size]
    for index, (_, inputs, outputs) in enumerate(widths.layers):
        yield Product(macs=widths.nodes * inputs * outputs, gradients=2 if index else 1)


def _make_inputs(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """`features` (batch, nodes, features), `sources`, `targets` (batch, edges) int32, `weights`
    (batch, edges), `labels` (batch,) int32."""
    widths = SIZES[case.size]
    nodes, batch = widths.nodes, case.batch
    drawn = rng.integers(0, nodes, (batch, nodes * widths.degree), dtype=np.int32)
    loops = np.tile(np.arange(nodes, dtype=np.int32), (batch, 1))
    sources = np.concatenate([drawn, loops], axis=1)
    targets = np.concatenate([rng.permuted(drawn, axis=1), loops], axis=1)
    # Both ends of an edge have equal degrees in sum, so that either could be called the source.
    degrees = np.stack([np.bincount(each, minlength=nodes) for each in targets])
    scale = 1.0 / np.sqrt(degrees)
    weights = np.take_along_axis(scale, sources, 1) * np.take_along_axis(scale, targets, 1)
    shape = (batch, nodes, widths.features[0])
    return {
        "features": rng.standard_normal(shape, dtype=np.float32),
        "sources": sources,
        "targets": targets,
        "weights": weights.astype(np.float32),
        "labels": rng.integers(0, widths.features[-1], batch, dtype=np.int32),
    }


def _leave_kinks(case: Case, params: ByName) -> ByName:
    layers = [name for name, _, _ in SIZES[case.size].layers]
    return leave_in_chain(params, layers, choose_spread(case.use_case))


def _trains_on(case: Case) -> TrainedGraphs:
    widths = SIZES[case.size]
    features, *_, classes = widths.features
    return TrainedGraphs(
        nodes=widths.nodes, degree=widths.degree, features=features, classes=classes
    )


NETWORK = Network(
    shapes=_shapes,
    products=_products,
    make_inputs=_make_inputs,
    gradient_tolerance=1e-4,
    leave_kinks=_leave_kinks,
)
CASES = make_cases(infer=(1, 8, 32, 128), train=(32, 128), per_sample=(32, 128), clip=1.25)
SPEC = NETWORK.make_spec(
    CASES, SETTINGS, make_training_arrays=training_arrays, trains_on=_trains_on
)

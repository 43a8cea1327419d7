"""Graphs as sampled neighbourhoods: an NPZ file, or files of citations such as Cora's."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchcore.planning.datasets.dataset import (
    EVERY,
    BadFileError,
    Dataset,
    refuse_others,
    store_arrays,
)
from benchcore.planning.datasets.planetoid import holds_planetoid, read_planetoid
from benchcore.workloads.contract import TrainedGraphs

_WANTED = (
    "an .npz with features (nodes, features), edges (2, edges) and labels (nodes,), or a folder "
    "with NAME.content and NAME.cites, or with Planetoid's ind.NAME.*"
)


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Nodes with features (nodes, features) and labels (nodes,), and undirected edges (2, edges).
    `train` and `val` are indices of nodes."""

    features: np.ndarray
    edges: np.ndarray
    labels: np.ndarray
    train: np.ndarray
    val: np.ndarray


def read_graph(
    path: Path,
    cache: Path,
    wanted: TrainedGraphs,
    report: Callable[[str], None] = lambda text: None,
) -> Dataset:
    """Read an .npz with `features`, `edges` and `labels`, or a folder with one `.content` and one
    `.cites` file, or with Planetoid's `ind.*` files. Raises UserError."""
    report(f"reading the graph of {path.name!r}")
    with refuse_others(path, _WANTED):
        graph = _read(path)
        _check(graph)
    sampler = _Sampler(graph, wanted)
    splits = {"train": sampler.stack(graph.train), "val": sampler.stack(graph.val)}
    return store_arrays(path.resolve().name, splits, cache, int(graph.labels.max()) + 1)


def _divide(features: np.ndarray, edges: np.ndarray, labels: np.ndarray) -> Graph:
    """Each sixth node for validation."""
    is_val = np.arange(len(labels)) % EVERY == 0
    return Graph(
        features=features,
        edges=edges,
        labels=labels,
        train=np.flatnonzero(~is_val),
        val=np.flatnonzero(is_val),
    )


def _read(path: Path) -> Graph:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return _divide(archive["features"], archive["edges"], archive["labels"])
    if not path.is_dir():
        raise BadFileError(f"it ends in {path.suffix!r}")
    if holds_planetoid(path):
        return Graph(**read_planetoid(path))
    return _read_citations(path)


def _read_citations(folder: Path) -> Graph:
    """Lines of a paper, its words and its class; and lines of two papers."""
    contents, cites = sorted(folder.glob("*.content")), sorted(folder.glob("*.cites"))
    if len(contents) != 1 or len(cites) != 1:
        raise BadFileError(f"it has {len(contents)} .content and {len(cites)} .cites files")
    rows = [line.split() for line in contents[0].read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row]
    if not rows or len({len(row) for row in rows}) != 1 or len(rows[0]) < 3:
        raise BadFileError(f"{contents[0].name} has lines of different lengths, or none")
    papers = {row[0]: index for index, row in enumerate(rows)}
    classes = sorted({row[-1] for row in rows})
    pairs = np.loadtxt(io.StringIO(cites[0].read_text(encoding="utf-8")), dtype=str, ndmin=2)
    edges = [
        (papers[one], papers[other])
        for one, other in pairs[:, :2]
        if one in papers and other in papers  # Citeseer cites papers without content
    ]
    return _divide(
        np.array([[float(word) for word in row[1:-1]] for row in rows], np.float32),
        np.array(edges, np.int64).reshape(-1, 2).T,
        np.array([classes.index(row[-1]) for row in rows]),
    )


def _check(graph: Graph) -> None:
    nodes = len(graph.features)
    if graph.features.ndim != 2 or not nodes or not np.isfinite(graph.features).all():
        raise BadFileError(f"its features are not finite, or of shape {graph.features.shape}")
    if graph.labels.shape != (nodes,) or graph.labels.dtype.kind not in "iu":
        raise BadFileError(f"its labels are {graph.labels.dtype} of shape {graph.labels.shape}")
    if graph.labels.min() < 0:
        raise BadFileError("it has labels below 0")
    edges = graph.edges
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu" or not edges.size:
        raise BadFileError(f"its edges are {edges.dtype} of shape {edges.shape}")
    if edges.min() < 0 or edges.max() >= nodes:
        raise BadFileError(f"it has edges to nodes that are not from 0 to {nodes - 1}")


class _Sampler:
    """Breadth first, with at most `degree` neighbours of each node, as in GraphSAGE (Hamilton et
    al., 2017). The same nodes come out whenever a graph is read."""

    def __init__(self, graph: Graph, wanted: TrainedGraphs) -> None:
        self._graph, self._wanted = graph, wanted
        self._features = _fit_width(graph.features.astype(np.float32), wanted.features)
        both = np.concatenate([graph.edges, graph.edges[::-1]], axis=1)
        one, other = np.unique(both[:, both[0] != both[1]], axis=1)
        starts = np.searchsorted(one, np.arange(len(graph.features) + 1))
        self._neighbours = [other[a:b] for a, b in pairwise(starts)]

    def stack(self, nodes: np.ndarray) -> dict[str, np.ndarray]:
        """`features` (examples, nodes, features), `sources`, `targets`, `weights` (examples, edges)
        and `labels`. What a small neighbourhood lacks has features of 0 and edges of weight 0."""
        examples = [self._sample(int(node)) for node in nodes]
        stacked = {name: np.stack([each[name] for each in examples]) for name in examples[0]}
        return {**stacked, "labels": self._graph.labels[nodes].astype(np.int32)}

    def _sample(self, first: int) -> dict[str, np.ndarray]:
        wanted, draw = self._wanted, np.random.Generator(np.random.PCG64(first))
        places, edges = {first: 0}, list[tuple[int, int]]()
        queue = [first]
        for node in queue:
            near = self._neighbours[node]
            chosen = draw.permutation(near)[: wanted.degree].tolist()
            for each in chosen:
                if each not in places and len(places) < wanted.nodes:
                    places[each] = len(places)
                    queue.append(each)
                if each in places:
                    edges.append((places[each], places[node]))
        features = np.zeros((wanted.nodes, wanted.features), np.float32)
        features[: len(places)] = self._features[list(places)]
        return {"features": features, **self._weigh(edges)}

    def _weigh(self, edges: list[tuple[int, int]]) -> dict[str, np.ndarray]:
        """Edges with self-loops, and their weights 1 / sqrt(degrees) of Kipf and Welling (2017)."""
        nodes, most = self._wanted.nodes, self._wanted.nodes * self._wanted.degree
        padding = [(0, 0)] * (most - len(edges))
        loops = [(node, node) for node in range(nodes)]
        sources, targets = np.array([*edges, *padding, *loops], np.int32).T
        is_edge = np.ones(len(sources), np.float32)
        is_edge[len(edges) : most] = 0
        degrees = np.bincount(targets, weights=is_edge, minlength=nodes)
        weights = is_edge / np.sqrt(degrees[sources] * degrees[targets])
        return {
            "sources": np.ascontiguousarray(sources),
            "targets": np.ascontiguousarray(targets),
            "weights": weights.astype(np.float32),
        }


def _fit_width(features: np.ndarray, width: int) -> np.ndarray:
    """Narrow features get zeros; wide ones a seeded random projection, which keeps distances
    (Johnson and Lindenstrauss, 1984)."""
    missing = width - features.shape[1]
    if missing >= 0:
        return np.pad(features, ((0, 0), (0, missing)))
    draw = np.random.Generator(np.random.PCG64(0))
    projection = draw.standard_normal((features.shape[1], width), dtype=np.float32)
    return (features @ projection) / np.float32(np.sqrt(width))

"""Graphs: three formats are read, neighbourhoods are sampled, and what is neither is refused."""

from __future__ import annotations

import json
import os
import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchcore.errors import UserError
from benchcore.planning.datasets.dataset import Dataset
from benchcore.planning.datasets.graphs import read_graph
from benchcore.workloads.contract import TrainedGraphs

WANTED = TrainedGraphs(nodes=4, degree=2, features=3, classes=5)
FEATURES = np.eye(6, 3, dtype=np.float32) + 1
LABELS = np.arange(6) % 2
RING = np.array([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])


def _write_npz(root: Path, **changes: np.ndarray) -> Path:
    path = root / "ring.npz"
    given: dict[str, Any] = {"features": FEATURES, "edges": RING, "labels": LABELS, **changes}
    np.savez(path, **given)
    return path


def _load(found: Dataset, split: str) -> dict[str, np.ndarray]:
    listed = json.loads(found.listing.read_text())["arrays"][split]
    return {name: np.load(path) for name, path in listed.items()}


def test_a_neighbourhood_begins_with_its_node_and_has_the_weights_of_a_gcn(tmp_path: Path) -> None:
    found = read_graph(_write_npz(tmp_path), tmp_path / "kept", WANTED)
    assert (found.num_train, found.num_val, found.num_classes) == (5, 1, 2)
    arrays = _load(found, "train")
    assert list(arrays) == ["features", "sources", "targets", "weights", "labels"]
    assert (arrays["features"][:, 0] == FEATURES[1:]).all()
    assert (arrays["labels"] == LABELS[1:]).all()
    # Node 0 of the sample and its two neighbours, and one neighbour of theirs.
    first = {name: each[0] for name, each in arrays.items()}
    edges = len(first["sources"]) - WANTED.nodes
    assert edges == WANTED.nodes * WANTED.degree
    matrix = np.zeros((WANTED.nodes, WANTED.nodes))
    np.add.at(matrix, (first["targets"], first["sources"]), first["weights"])
    adjacent = matrix > 0
    degrees = adjacent.sum(axis=1)
    assert degrees[0] == 3
    wanted = adjacent / np.sqrt(np.outer(degrees, degrees))
    assert matrix == pytest.approx(wanted, rel=1e-6)


def test_a_lonely_node_has_only_itself(tmp_path: Path) -> None:
    path = _write_npz(tmp_path, edges=np.array([[1], [2]]))
    sample = {name: each[0] for name, each in _load(_read(path, tmp_path), "val").items()}
    assert (sample["features"][1:] == 0).all()
    assert sorted(sample["weights"].tolist()) == [0.0] * 8 + [1.0] * WANTED.nodes  # self-loops


def _read(path: Path, tmp_path: Path) -> Dataset:
    return read_graph(path, tmp_path / "kept", WANTED)


def test_narrow_features_get_zeros_and_wide_ones_are_projected(tmp_path: Path) -> None:
    narrow = _load(_read(_write_npz(tmp_path, features=FEATURES[:, :2]), tmp_path), "train")
    assert (narrow["features"][:, 0, 2] == 0).all()
    wide = np.repeat(FEATURES, 50, axis=1)
    again = [_load(_read(_write_npz(tmp_path, features=wide), tmp_path), "train") for _ in "ab"]
    assert (again[0]["features"] == again[1]["features"]).all()
    assert again[0]["features"][:, 0].std() > 0


def _write_citations(root: Path) -> Path:
    rows = [
        f"p{i}\t" + "\t".join(f"{v:g}" for v in FEATURES[i]) + f"\tc{LABELS[i]}" for i in range(6)
    ]
    (root / "cora.content").write_text("\n".join(rows) + "\n")
    pairs = [f"p{a} p{b}" for a, b in RING.T] + ["p0 unknown"]
    (root / "cora.cites").write_text("\n".join(pairs) + "\n")
    return root


def test_citations_are_the_same_graph(tmp_path: Path) -> None:
    (tmp_path / "cora").mkdir()
    cited = _read(_write_citations(tmp_path / "cora"), tmp_path)
    assert cited.sha256 == _read(_write_npz(tmp_path), tmp_path).sha256
    assert cited.name == "cora"


class _Matrix:
    """Pickled under the name that SciPy's has."""

    def __init__(self, dense: np.ndarray) -> None:
        rows, columns = np.nonzero(dense)
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))])
        self._shape, self.data = dense.shape, dense[rows, columns]
        self.indices, self.indptr = columns, starts


def _write_planetoid(root: Path) -> Path:
    """Four known nodes, two of them to train on; and two to test, in another order."""
    one_hot = np.eye(2, dtype=np.int32)[LABELS]
    graph = defaultdict(list, {int(a): [int(b)] for a, b in RING.T})
    test = [5, 4]
    parts = {
        "x": _Matrix(FEATURES[:2]), "allx": _Matrix(FEATURES[:4]), "tx": _Matrix(FEATURES[test]),
        "y": one_hot[:2], "ally": one_hot[:4], "ty": one_hot[test], "graph": graph,
    }  # fmt: skip
    for name, part in parts.items():
        content = pickle.dumps(part, protocol=2)
        given = f"c{__name__}\n_Matrix\n".encode()
        assert given in content or not isinstance(part, _Matrix)
        content = content.replace(given, b"cscipy.sparse.csr\ncsr_matrix\n")
        (root / f"ind.ring.{name}").write_bytes(content)
    (root / "ind.ring.test.index").write_text("5\n4\n")
    return root


def test_planetoid_has_its_own_splits(tmp_path: Path) -> None:
    (tmp_path / "ring").mkdir()
    found = _read(_write_planetoid(tmp_path / "ring"), tmp_path)
    assert (found.num_train, found.num_val) == (2, 2)
    val = _load(found, "val")
    assert (val["features"][:, 0] == FEATURES[[4, 5]]).all()
    assert (val["labels"] == LABELS[[4, 5]]).all()


class _Evil:
    def __init__(self, makes: Path) -> None:
        self._makes = makes

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._makes),)


def _evil(root: Path) -> Path:
    content = pickle.dumps(_Evil(root / "made"), protocol=2)
    (_write_planetoid(root) / "ind.ring.graph").write_bytes(content)
    return root


def _cut(root: Path) -> Path:
    path = _write_planetoid(root) / "ind.ring.allx"
    path.write_bytes(path.read_bytes()[:-20])
    return root


def _mixed(root: Path) -> Path:
    _write_planetoid(root)
    (root / "ind.ring.y").replace(root / "ind.ring.tx")
    (root / "ind.ring.y").write_bytes((root / "ind.ring.ally").read_bytes())
    return root


def _uneven(root: Path) -> Path:
    path = _write_citations(root) / "cora.content"
    path.write_text(path.read_text() + "p9 1\n")
    return root


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_evil, "which is not numpy's"),
        (_cut, "ind.ring.allx can't be read as a pickle"),
        (_mixed, "its parts do not fit"),
        (_uneven, "lines of different lengths"),
        (lambda root: root, "it has 0 .content and 0 .cites"),
        (lambda root: _write_npz(root, edges=RING + 1), "edges to nodes that are not from 0 to 5"),
        (lambda root: _write_npz(root, labels=LABELS[:5]), "its labels are"),
        (lambda root: _write_npz(root, labels=LABELS - 1), "labels below 0"),
        (lambda root: _write_npz(root, features=FEATURES * np.nan), "not finite"),
        (lambda root: _write_npz(root, edges=RING[:, :0]), "its edges are"),
    ],
)
def test_a_graph_that_is_damaged_or_something_else_is_refused(
    spoil: Callable[[Path], Path], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"wanted an \.npz with features") as refused:
        _read(spoil(tmp_path), tmp_path)
    assert words in str(refused.value)
    assert not (tmp_path / "made").exists()

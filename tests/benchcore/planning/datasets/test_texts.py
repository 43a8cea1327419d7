"""Texts: classes from folders, windows for a language model, and what is neither is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchcore.errors import UserError
from benchcore.planning.datasets.dataset import Dataset
from benchcore.planning.datasets.texts import read_texts
from benchcore.workloads.contract import TrainedTexts

CLASSES = TrainedTexts(tokens=4, vocabulary=6, classes=5)
NEXT = TrainedTexts(tokens=4, vocabulary=6, classes=None)


def _write(root: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = root / f"{name.replace('__', '/')}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def _write_classes(root: Path) -> Path:
    train = {"train__a__1": "The cat. The cat.", "train__b__1": "A dog"}
    return _write(root / "pets", **train, val__b__1="the zebra, a dog and more")


def _load(found: Dataset, split: str) -> list[list]:
    listed = json.loads(found.listing.read_text())["arrays"][split]
    return [np.load(listed[name]).tolist() for name in ("tokens", "labels")]


def test_texts_are_numbered_by_the_words_of_training(tmp_path: Path) -> None:
    found = read_texts(_write_classes(tmp_path), tmp_path / "kept", CLASSES)
    assert (found.name, found.num_train, found.num_val, found.num_classes) == ("pets", 2, 1, 2)
    # the most frequent, ties in the alphabet's order: . cat the a (and dog is too rare)
    assert _load(found, "train") == [[[4, 3, 2, 4], [5, 1, 0, 0]], [0, 1]]
    assert _load(found, "val") == [[[4, 1, 1, 5]], [1]]
    assert found.side is None
    assert [(row.name, row.dtype, row.shape) for row in found.rows or ()] == [
        ("tokens", "int32", (4,)),
        ("labels", "int32", ()),
    ]


def test_without_splits_each_sixth_text_is_for_validation(tmp_path: Path) -> None:
    root = _write(tmp_path / "pets", **{f"{name}__{i}": name for name in "ab" for i in range(6)})
    found = read_texts(root, tmp_path / "kept", CLASSES)
    assert (found.num_train, found.num_val) == (10, 2)
    assert _load(found, "val")[1] == [0, 1]


def test_a_language_model_gets_windows_and_the_next_tokens(tmp_path: Path) -> None:
    words = "one two three four five " * 6
    path = _write(tmp_path, book=words) / "book.txt"
    found = read_texts(path, tmp_path / "kept", NEXT)
    tokens, labels = (np.array(each) for each in _load(found, "train"))
    assert tokens.shape == labels.shape == (6, 4)
    assert (labels.ravel()[:-1] == tokens.ravel()[1:]).all()
    assert found.num_val == 4  # labels: one window of the last sixth
    assert found.num_classes == NEXT.vocabulary


def test_old_texts_in_latin_1_are_read(tmp_path: Path) -> None:
    root = _write_classes(tmp_path)
    (root / "train" / "a" / "2.txt").write_bytes("The caf\xe9".encode("latin-1"))
    assert read_texts(root, tmp_path / "kept", CLASSES).num_train == 3


def _no_val(root: Path) -> Path:
    return _write(root, train__a__1="x")


def _other_class(root: Path) -> Path:
    return _write(root, train__a__1="x", val__b__1="x")


def _binary(root: Path) -> Path:
    path = _write(root, a__1="x") / "a" / "1.txt"
    path.write_bytes(b"\xff\x00")
    return root


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda root: root, "there are none for 'train'"),
        (_no_val, "there is no folder 'val'"),
        (_other_class, "the class 'b' has no text to train on"),
        (_binary, "1.txt is not text"),
        (lambda root: root / "nowhere", "there is no folder 'nowhere'"),
        (lambda root: _write(root, one="x", two="x"), "they have no classes"),
    ],
)
def test_what_is_no_text_is_refused(
    spoil: Callable[[Path], Path], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="wanted texts in train/CLASS") as refused:
        read_texts(spoil(tmp_path), tmp_path / "kept", CLASSES)
    assert words in str(refused.value)


def test_a_text_that_is_too_short_for_one_window_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="train has 2 tokens, too few for 4"):
        read_texts(_write(tmp_path, book="a b c") / "book.txt", tmp_path / "kept", NEXT)

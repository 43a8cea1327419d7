"""Texts as tokens: a folder of classes, or for a language model any text files.

A token is a word in lower case, or a punctuation mark. The vocabulary is of the training texts, the
most frequent first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchcore.planning.datasets.dataset import (
    EVERY,
    MOST_BYTES,
    BadFileError,
    Dataset,
    Splits,
    refuse_others,
    store_arrays,
)
from benchcore.workloads.contract import TrainedTexts

PADDING, UNKNOWN = 0, 1
_RESERVED = 2
_WANTED = (
    "texts in train/CLASS/*.txt and val/CLASS/*.txt, or in CLASS/*.txt, or for a language model in "
    "*.txt,"
)
_TOKEN = re.compile(r"\w+|[^\w\s]")
_NO_CLASS = ""
Text = tuple[str, str]
"""A class, and the words."""


def read_texts(
    path: Path, cache: Path, wanted: TrainedTexts, report: Callable[[str], None] = lambda text: None
) -> Dataset:
    """Read `train/CLASS/*.txt` and `val/CLASS/*.txt`, or `CLASS/*.txt` with each sixth text for
    validation. For a language model also `*.txt`, or a file. Raises UserError."""
    report(f"reading the texts of {path.name!r}")
    with refuse_others(path, _WANTED):
        splits, num_classes = _make_arrays(_list_texts(path), wanted)
    return store_arrays(path.resolve().name, splits, cache, num_classes)


def _make_arrays(found: Mapping[str, Sequence[Text]], wanted: TrainedTexts) -> tuple[Splits, int]:
    """Texts by split as the arrays `tokens` and `labels`, and how many classes there are."""
    tokens = {split: [_tokenise(text) for _, text in of] for split, of in found.items()}
    indices = _number(tokens["train"], wanted.vocabulary)
    numbered = {
        split: [[indices.get(token, UNKNOWN) for token in text] for text in of]
        for split, of in tokens.items()
    }
    if wanted.classes is None:
        windows = {split: _cut_windows(split, of, wanted.tokens) for split, of in numbered.items()}
        return windows, wanted.vocabulary
    classes = sorted({label for label, _ in found["train"]})
    if classes == [_NO_CLASS]:
        raise BadFileError("they have no classes")
    if unknown := sorted({label for label, _ in found["val"]} - set(classes)):
        raise BadFileError(f"the class {unknown[0]!r:.100} has no text to train on")
    splits = {
        split: {
            "tokens": np.array([_pad(text, wanted.tokens) for text in of], np.int32),
            "labels": np.array([classes.index(label) for label, _ in found[split]], np.int32),
        }
        for split, of in numbered.items()
    }
    return splits, len(classes)


def _list_texts(path: Path) -> dict[str, list[Text]]:
    if path.is_file():
        return _split_file(_read(path))
    if (path / "train").is_dir():
        found = {split: [*_list_classes(path / split)] for split in ("train", "val")}
    else:
        every = [*_list_classes(path)] or [(_NO_CLASS, _read(file)) for file in _list_files(path)]
        found = _split_texts(every)
    if empty := [split for split, texts in found.items() if not texts]:
        raise BadFileError(f"there are none for {empty[0]!r}")
    return found


def _split_texts(texts: Iterable[Text]) -> dict[str, list[Text]]:
    """Each sixth text for validation; a single one is divided at five sixths of its characters."""
    texts = list(texts)
    if len(texts) == 1:
        return _split_file(texts[0][1])
    return {
        "train": [text for index, text in enumerate(texts) if index % EVERY],
        "val": [text for index, text in enumerate(texts) if index % EVERY == 0],
    }


def _split_file(content: str) -> dict[str, list[Text]]:
    end = len(content) * (EVERY - 1) // EVERY
    return {"train": [(_NO_CLASS, content[:end])], "val": [(_NO_CLASS, content[end:])]}


def _list_classes(folder: Path) -> Iterator[Text]:
    if not folder.is_dir():
        raise BadFileError(f"there is no folder {folder.name!r}")
    for each in sorted(folder.iterdir()):
        if each.is_dir() and not each.name.startswith("."):
            yield from ((each.name, _read(file)) for file in _list_files(each))


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.txt") if path.is_file())


def _read(path: Path) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise BadFileError(f"{path.name} has more than {MOST_BYTES} bytes")
    content = path.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        if b"\0" in content:
            raise BadFileError(f"{path.name} is not text") from error
        return content.decode("latin-1")


def _tokenise(text: str) -> list[str]:
    return _TOKEN.findall(text.lower())


def _number(texts: Iterable[Sequence[str]], vocabulary: int) -> dict[str, int]:
    counted = Counter(token for text in texts for token in text)
    ordered = sorted(counted, key=lambda token: (-counted[token], token))
    return {
        token: _RESERVED + index for index, token in enumerate(ordered[: vocabulary - _RESERVED])
    }


def _pad(text: Sequence[int], length: int) -> list[int]:
    return [*text[:length], *[PADDING] * (length - len(text))]


def _cut_windows(split: str, texts: Iterable[Sequence[int]], length: int) -> dict[str, np.ndarray]:
    """All texts one after the other, in windows of `length` tokens and the next one."""
    joined = np.array([token for text in texts for token in text], np.int32)
    number = (len(joined) - 1) // length
    if number < 1:
        raise BadFileError(
            f"{split} has {len(joined)} tokens, too few for {length} and the next one"
        )
    return {
        "tokens": joined[: number * length].reshape(number, length),
        "labels": joined[1 : number * length + 1].reshape(number, length),
    }

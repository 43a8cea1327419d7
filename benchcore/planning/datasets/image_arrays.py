"""Images in arrays: MNIST's IDX files, CIFAR-10's binary files, an NPZ file as Keras has it, or a
CSV file."""

from __future__ import annotations

import gzip
import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from benchcore.planning.datasets.dataset import (
    EVERY,
    MOST_BYTES,
    BadFileError,
    Dataset,
    refuse_others,
    store_arrays,
)

_LARGEST_SIDE = 1024
_NPZ = {"train": ("x_train", "y_train"), "val": ("x_test", "y_test")}
_IDX = {"train": "train", "val": "t10k"}
_CIFAR = {"train": ("data_batch_[1-5].bin", 5), "val": ("test_batch.bin", 1)}
"""Files of a split, and how many there are."""
_CIFAR_RECORD = 1 + 3 * 32 * 32
_WANTED = (
    "MNIST's four IDX files or CIFAR-10's six binary ones in a folder, an .npz with x_train, "
    "y_train, x_test and y_test, or a .csv with pixels and a last column of labels"
)
_Splits = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Images (number, side, side) or (number, side, side, 3), uint8, and labels, by split."""


def holds_arrays(path: Path) -> bool:
    """Whether it is a file, or a folder with such files; any other is a folder of images."""
    return path.is_file() or any(path.glob("*-idx3-ubyte*")) or _holds_cifar(path)


def _holds_cifar(path: Path) -> bool:
    return any(path.glob(_CIFAR["train"][0]))


def read_image_arrays(
    path: Path, cache: Path, report: Callable[[str], None] = lambda text: None
) -> Dataset:
    """Check the arrays, and store them in `cache` so that the loader can map them into memory.

    Raises UserError for files that are damaged, or hold something else.
    """
    report(f"reading the arrays of {path.name!r}")
    with refuse_others(path, _WANTED):
        splits = _read(path)
        for split, (images, labels) in splits.items():
            _check(split, images, labels)
        if splits["train"][0].shape[1:] != splits["val"][0].shape[1:]:
            raise BadFileError("the images of both splits differ in their shape")
    return _store(path, splits, cache)


def _read(path: Path) -> _Splits:
    if path.is_dir() and _holds_cifar(path):
        return {split: _read_cifar(path, *files) for split, files in _CIFAR.items()}
    if path.is_dir():
        return {
            split: (
                _read_idx(path, f"{stem}-images-idx3-ubyte", 3),
                _read_idx(path, f"{stem}-labels-idx1-ubyte", 1),
            )
            for split, stem in _IDX.items()
        }
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return {
                split: (archive[images], archive[labels].ravel())
                for split, (images, labels) in _NPZ.items()
            }
    if ".csv" in path.suffixes:
        return _read_csv(path)
    raise BadFileError(f"it ends in {path.suffix!r}")


def _read_idx(folder: Path, name: str, num_axes: int) -> np.ndarray:
    """The type (8: bytes), the number of axes, each one's length, and the bytes."""
    content = _unpack(_find(folder, name))
    header = 4 + 4 * num_axes
    if content[:4] != bytes((0, 0, 8, num_axes)) or len(content) < header:
        raise BadFileError(f"{name} is not of bytes in {num_axes} axes")
    shape = np.frombuffer(content, ">u4", num_axes, 4).astype(int).tolist()
    if math.prod(shape) != len(content) - header:
        raise BadFileError(f"{name} has {len(content) - header} bytes for the shape {shape}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _read_cifar(folder: Path, pattern: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Records of a label and 32 x 32 pixels, all red ones first, then the green and the blue."""
    files = sorted(folder.glob(pattern))
    if len(files) != number:
        raise BadFileError(f"it has {len(files)} files {pattern}")
    contents = [_unpack(each) for each in files]
    for file, content in zip(files, contents, strict=True):
        if not content or len(content) % _CIFAR_RECORD:
            raise BadFileError(f"{file.name} has {len(content)} bytes, not a multiple of 3073")
    table = np.frombuffer(b"".join(contents), np.uint8).reshape(-1, _CIFAR_RECORD)
    if table[:, 0].max() > 9:
        raise BadFileError(f"{pattern} has a label above 9")
    images = table[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, table[:, 0].astype(int)


def _find(folder: Path, name: str) -> Path:
    for each in (folder / name, folder / f"{name}.gz"):
        if each.is_file():
            return each
    raise BadFileError(f"there is no {name}, plain or as .gz")


def _unpack(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise BadFileError(f"{path.name} has more than {MOST_BYTES} bytes")
    return content


def _read_csv(path: Path) -> _Splits:
    table = np.loadtxt(io.BytesIO(_unpack(path)), delimiter=",", ndmin=2)
    side = math.isqrt(table.shape[1] - 1)
    pixels = table[:, : side * side]
    if side * side != table.shape[1] - 1 or not ((pixels >= 0) & (pixels <= 255)).all():
        raise BadFileError(f"its {table.shape[1]} columns are not a square of pixels and a label")
    images = pixels.astype(np.uint8).reshape(-1, side, side)
    labels = table[:, -1].astype(int)
    val = np.arange(len(table)) % EVERY == 0
    return {"train": (images[~val], labels[~val]), "val": (images[val], labels[val])}


def _check(split: str, images: np.ndarray, labels: np.ndarray) -> None:
    square = images.ndim in (3, 4) and images.shape[1] == images.shape[2] <= _LARGEST_SIDE
    if images.dtype != np.uint8 or not square or images.shape[3:] not in ((), (3,)):
        raise BadFileError(f"the images of {split} are {images.dtype} of shape {images.shape}")
    if len(images) != len(labels) or not len(images):
        raise BadFileError(f"{split} has {len(images)} images and {len(labels)} labels")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= 1000:
        raise BadFileError(f"labels of {split} are not whole numbers from 0 to 999")


def _store(path: Path, splits: _Splits, cache: Path) -> Dataset:
    named = {
        split: {"images": images, "labels": labels.astype(np.int32)}
        for split, (images, labels) in splits.items()
    }
    num_classes = 1 + max(int(labels.max()) for _, labels in splits.values())
    return store_arrays(path.resolve().name, named, cache, num_classes)

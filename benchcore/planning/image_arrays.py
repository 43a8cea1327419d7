"""Images in arrays: the IDX files of MNIST, an NPZ file as Keras has it, or a CSV file."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchcore.errors import UserError, show
from benchcore.planning.image_folder import ImageFolder
from benchcore.protocol import write_json

_MOST_BYTES = 2**31
_LARGEST_SIDE = 1024
_NPZ = {"train": ("x_train", "y_train"), "val": ("x_test", "y_test")}
_IDX = {"train": "train", "val": "t10k"}
_EVERY = 6
"""In a CSV file each sixth row is for validation, as in MNIST one image in seven."""
Splits = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Images (number, side, side) or (number, side, side, 3), uint8, and labels, by split."""


class _BadArraysError(Exception):
    """Why a file is none of ours."""


def holds_arrays(path: Path) -> bool:
    """Whether it is a file, or a folder with IDX files; any other is a folder of images."""
    return path.is_file() or any(path.glob("*-idx3-ubyte*"))


def read_image_arrays(
    path: Path, keep: Path, report: Callable[[str], None] = lambda text: None
) -> ImageFolder:
    """Check the arrays, and keep them in `keep` so that the loader can map them into memory.

    Raises UserError for files that are damaged, or hold something else.
    """
    report(f"reading the arrays of {path.name!r}")
    try:
        splits = _read(path)
        for split, (images, labels) in splits.items():
            _check(split, images, labels)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise _refuse(path, f"{type(error).__name__}: {error}") from error
    except _BadArraysError as error:
        raise _refuse(path, str(error)) from error
    return _store(path, splits, keep)


def _refuse(path: Path, why: str) -> UserError:
    return UserError(
        f"wanted MNIST's four IDX files in a folder, an .npz with x_train, y_train, x_test and "
        f"y_test, or a .csv with pixels and a last column of labels in {show(path)}, but "
        f"{why:.200}; name another with --dataset"
    )


def _read(path: Path) -> Splits:
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
    raise _BadArraysError(f"it ends in {path.suffix!r}")


def _read_idx(folder: Path, name: str, num_axes: int) -> np.ndarray:
    """The type (8: bytes), the number of axes, each one's length, and the bytes."""
    content = _unpack(_find(folder, name))
    header = 4 + 4 * num_axes
    if content[:4] != bytes((0, 0, 8, num_axes)) or len(content) < header:
        raise _BadArraysError(f"{name} is not of bytes in {num_axes} axes")
    shape = np.frombuffer(content, ">u4", num_axes, 4).astype(int).tolist()
    if math.prod(shape) != len(content) - header:
        raise _BadArraysError(f"{name} has {len(content) - header} bytes for the shape {shape}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _find(folder: Path, name: str) -> Path:
    for each in (folder / name, folder / f"{name}.gz"):
        if each.is_file():
            return each
    raise _BadArraysError(f"there is no {name}, plain or as .gz")


def _unpack(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise _BadArraysError(f"{path.name} has more than {_MOST_BYTES} bytes")
    return content


def _read_csv(path: Path) -> Splits:
    table = np.loadtxt(io.BytesIO(_unpack(path)), delimiter=",", ndmin=2)
    side = math.isqrt(table.shape[1] - 1)
    pixels = table[:, : side * side]
    if side * side != table.shape[1] - 1 or not ((pixels >= 0) & (pixels <= 255)).all():
        raise _BadArraysError(f"its {table.shape[1]} columns are no square of pixels and a label")
    images = pixels.astype(np.uint8).reshape(-1, side, side)
    labels = table[:, -1].astype(int)
    val = np.arange(len(table)) % _EVERY == 0
    return {"train": (images[~val], labels[~val]), "val": (images[val], labels[val])}


def _check(split: str, images: np.ndarray, labels: np.ndarray) -> None:
    square = images.ndim in (3, 4) and images.shape[1] == images.shape[2] <= _LARGEST_SIDE
    if images.dtype != np.uint8 or not square or images.shape[3:] not in ((), (3,)):
        raise _BadArraysError(f"the images of {split} are {images.dtype} of shape {images.shape}")
    if len(images) != len(labels) or not len(images):
        raise _BadArraysError(f"{split} has {len(images)} images and {len(labels)} labels")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= 1000:
        raise _BadArraysError(f"labels of {split} are not whole numbers from 0 to 999")


def _store(path: Path, splits: Splits, keep: Path) -> ImageFolder:
    train, val = splits["train"], splits["val"]
    if train[0].shape[1:] != val[0].shape[1:]:
        raise _refuse(path, "the images of both splits differ in their shape")
    sha = hashlib.sha256()
    for images, labels in (train, val):
        for each in (images, labels.astype(np.int32)):
            sha.update(f"{each.shape}".encode() + np.ascontiguousarray(each).tobytes())
    folder = keep / f"arrays-{sha.hexdigest()[:32]}"
    folder.mkdir(parents=True, exist_ok=True)
    listed: dict[str, Any] = {}
    for split, (images, labels) in splits.items():
        listed[split] = [str(folder / f"{split}-{kind}.npy") for kind in ("images", "labels")]
        for name, each in zip(listed[split], (images, labels.astype(np.int32)), strict=True):
            part = Path(f"{name}.part.npy")
            np.save(part, each)
            part.replace(name)
    listing = folder / "listing.json"
    write_json(listing, {"root": str(folder), "splits": {}, "arrays": listed})
    return ImageFolder(
        name=path.resolve().name,
        listing=listing,
        sha256=sha.hexdigest(),
        num_classes=int(max(train[1].max(), val[1].max())) + 1,
        num_train=len(train[0]),
        num_val=len(val[0]),
        skipped=(),
        side=train[0].shape[1],
    )

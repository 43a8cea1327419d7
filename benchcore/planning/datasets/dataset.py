"""A data set that can be trained on, and how its arrays are stored for the loader."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchcore.errors import UserError, show
from benchcore.protocol import RowOrder, write_json

MOST_BYTES = 2**31
"""Largest file that is read, and largest size of the stored arrays."""
EVERY = 6
"""Without splits each sixth example is for validation, as in MNIST one image in seven."""
Splits = Mapping[str, Mapping[str, np.ndarray]]
"""Arrays by split, `train` and `val`, and by name: `labels` last, int32. Each begins with the
examples' axis."""


_LABELS = RowOrder(name="labels", dtype="int32", shape=())


class BadFileError(Exception):
    """Why a file can't be read as a data set."""


@contextmanager
def refuse_others(path: Path, wanted: str) -> Iterator[None]:
    """Raises UserError with what was wanted for a file at the path that can't be read or is
    something else."""
    try:
        yield
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise _refuse(path, wanted, f"{type(error).__name__}: {error}") from error
    except BadFileError as error:
        raise _refuse(path, wanted, str(error)) from error


def _refuse(path: Path, wanted: str, why: str) -> UserError:
    return UserError(
        f"wanted {wanted} in {show(path)}, but {why:.200}; name another with --dataset"
    )


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What was found at a path. `listing` names its files; `skipped` the broken ones."""

    name: str
    listing: Path
    sha256: str
    """Hash of every image's name, label and bytes; or of the arrays."""
    num_classes: int
    num_train: int
    num_val: int
    """Labels to validate on: of a text whose every next token is predicted, one for each."""
    skipped: tuple[str, ...] = ()
    rows: tuple[RowOrder, ...] | None = None
    """The arrays of an example; None = image files, which are cropped to any side."""

    @property
    def side(self) -> int | None:
        """Height and width of images in arrays, which are not resized."""
        return self.rows[0].shape[0] if self.rows and self.rows[0].name == "images" else None

    def list_rows(self, side: int | None) -> tuple[RowOrder, ...]:
        """The arrays of an example, with image files cropped to `side`."""
        if self.rows is not None:
            return self.rows
        assert side is not None, "image files are cropped to a side"
        return (RowOrder(name="images", dtype="uint8", shape=(side, side, 3)), _LABELS)


def store_arrays(name: str, splits: Splits, cache: Path, num_classes: int) -> Dataset:
    """Store arrays in a folder of `cache`, named by their hash, so that the loader can map them
    into memory. Images without channels are listed with three equal ones. Raises UserError if they
    are too large."""
    of_train = splits["train"]
    size = sum(each.nbytes for arrays in splits.values() for each in arrays.values())
    if size > MOST_BYTES:
        raise UserError(
            f"wanted a data set of at most {MOST_BYTES} bytes, got {size} from {show(Path(name))}; "
            "use a smaller data set"
        )
    sha = hashlib.sha256()
    for arrays in splits.values():
        for each in arrays.values():
            sha.update(f"{each.shape}".encode() + np.ascontiguousarray(each).tobytes())
    folder = cache / f"arrays-{sha.hexdigest()[:32]}"
    folder.mkdir(parents=True, exist_ok=True)
    listed: dict[str, dict[str, str]] = {}
    for split, arrays in splits.items():
        listed[split] = {kind: str(folder / f"{split}-{kind}.npy") for kind in arrays}
        for kind, each in arrays.items():
            part = folder / f"{split}-{kind}.part.npy"
            np.save(part, each)
            part.replace(listed[split][kind])
    listing = folder / "listing.json"
    write_json(listing, {"root": str(folder), "splits": {}, "arrays": listed})
    return Dataset(
        name=name,
        listing=listing,
        sha256=sha.hexdigest(),
        num_classes=num_classes,
        num_train=len(of_train["labels"]),
        num_val=splits["val"]["labels"].size,
        rows=tuple(_describe_row(*each) for each in of_train.items()),
    )


def _describe_row(name: str, array: np.ndarray) -> RowOrder:
    shape = array.shape[1:]
    if name == "images":
        shape = (*shape[:2], 3)
    return RowOrder(name=name, dtype=array.dtype.name, shape=shape)

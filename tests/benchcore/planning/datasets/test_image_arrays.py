"""Arrays of images: three formats are read, and what is damaged or something else is refused."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchcore.errors import UserError
from benchcore.planning.datasets.image_arrays import holds_arrays, read_image_arrays

IMAGES = np.arange(12 * 16, dtype=np.uint8).reshape(12, 4, 4)
LABELS = np.arange(12) % 3


def _write_idx(root: Path) -> Path:
    for stem, rows in (("train", slice(0, 10)), ("t10k", slice(10, 12))):
        for kind, array in (("images-idx3", IMAGES[rows]), ("labels-idx1", LABELS[rows])):
            header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
            content = header + array.astype(np.uint8).tobytes()
            (root / f"{stem}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
    return root


def _write_npz(root: Path) -> Path:
    path = root / "digits.npz"
    train, test = {"x_train": IMAGES[:10], "y_train": LABELS[:10]}, IMAGES[10:]
    np.savez(path, x_test=test, y_test=LABELS[10:], **train)  # type: ignore[arg-type]
    return path


def _write_cifar(root: Path, *, sides: int = 32) -> Path:
    """Of ten colour images five batches, and one to validate on."""
    draw = np.random.default_rng(0)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    for name in names:
        images = draw.integers(0, 256, (2, 3 * sides * sides), dtype=np.uint8)
        labels = draw.integers(0, 10, (2, 1), dtype=np.uint8)
        (root / name).write_bytes(np.concatenate([labels, images], axis=1).tobytes())
    return root


def _write_csv(root: Path) -> Path:
    path = root / "digits.csv.gz"
    lines = [
        ",".join(map(str, [*each.ravel(), at])) for each, at in zip(IMAGES, LABELS, strict=True)
    ]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


@pytest.mark.parametrize("write", [_write_idx, _write_npz, _write_csv])
def test_arrays_are_kept_as_they_are(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path)
    assert holds_arrays(path)
    found = read_image_arrays(path, tmp_path / "kept")
    assert (found.num_train, found.num_val, found.num_classes, found.side) == (10, 2, 3, 4)
    again = read_image_arrays(path, tmp_path / "kept")
    assert again == found
    listed = json.loads(found.listing.read_text())["arrays"]
    val = np.arange(12) % 6 == 0 if write is _write_csv else np.arange(12) >= 10
    for split, rows in (("train", ~val), ("val", val)):
        images, labels = (np.load(listed[split][name]) for name in ("images", "labels"))
        assert (images == IMAGES[rows]).all() and (labels == LABELS[rows]).all()


def test_cifar_records_are_a_label_and_planes_of_red_green_and_blue(tmp_path: Path) -> None:
    root = _write_cifar(tmp_path)
    assert holds_arrays(root)
    found = read_image_arrays(root, tmp_path / "kept")
    assert (found.num_train, found.num_val, found.side) == (10, 2, 32)
    listed = json.loads(found.listing.read_text())["arrays"]["train"]
    images, labels = (np.load(listed[name]) for name in ("images", "labels"))
    third = (root / "data_batch_2.bin").read_bytes()[:3073]
    assert labels[2] == third[0]
    assert images[2, 5, 7].tolist() == [third[1 + plane * 1024 + 5 * 32 + 7] for plane in range(3)]


def _cut_cifar(root: Path) -> Path:
    path = _write_cifar(root) / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    return root


def _lose_cifar(root: Path) -> Path:
    (_write_cifar(root) / "test_batch.bin").unlink()
    return root


def _mislabel_cifar(root: Path) -> Path:
    path = _write_cifar(root) / "test_batch.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])
    return root


def test_the_same_images_with_another_label_are_other_data(tmp_path: Path) -> None:
    path = _write_npz(tmp_path)
    before = read_image_arrays(path, tmp_path / "kept").sha256
    with np.load(path) as archive:
        changed = {**archive, "y_train": archive["y_train"][::-1]}
    np.savez(path, **changed)
    assert read_image_arrays(path, tmp_path / "kept").sha256 != before


def _cut(root: Path) -> Path:
    path = _write_idx(root) / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))
    return root


def _damage(root: Path) -> Path:
    path = _write_idx(root) / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    return root


def _lose(root: Path) -> Path:
    (_write_idx(root) / "t10k-labels-idx1-ubyte.gz").unlink()
    return root


def _swap(root: Path) -> Path:
    _write_idx(root)
    (root / "train-labels-idx1-ubyte.gz").replace(root / "train-images-idx3-ubyte.gz")
    return root


def _pickle(root: Path) -> Path:
    path = root / "x.npz"
    given = {name: np.array([{}]) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(path, **given)  # type: ignore[arg-type]
    return path


def _floats(root: Path) -> Path:
    path = root / "x.npz"
    images, labels = IMAGES / 255, LABELS
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)
    return path


def _text(root: Path) -> Path:
    (root / "x.csv").write_text("a,b\n")
    return root / "x.csv"


def _no_square(root: Path) -> Path:
    (root / "x.csv").write_text("1,2,3,4\n" * 9)
    return root / "x.csv"


def _other(root: Path) -> Path:
    (root / "x.pkl").write_text("x")
    return root / "x.pkl"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_cut, "159 bytes for the shape"),
        (_damage, "EOFError"),
        (_lose, "there is no t10k-labels-idx1-ubyte"),
        (_swap, "is not of bytes in 3 axes"),
        (_pickle, "allow_pickle=False"),
        (_floats, "are float64 of shape"),
        (_text, "ValueError"),
        (_no_square, "not a square of pixels"),
        (_other, "it ends in '.pkl'"),
        (_cut_cifar, "data_batch_3.bin has 6145 bytes"),
        (_lose_cifar, "it has 0 files test_batch.bin"),
        (_mislabel_cifar, "has a label above 9"),
    ],
)
def test_what_is_damaged_or_something_else_is_refused(
    spoil: Callable[[Path], Path], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="wanted MNIST's four IDX files") as refused:
        read_image_arrays(spoil(tmp_path), tmp_path / "kept")
    assert words in str(refused.value)
    assert not (tmp_path / "kept").exists()

"""What is refused of an image folder, and how its listing is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from image_folders import write_digits
from PIL import Image

from benchcore.errors import UserError
from benchcore.planning.datasets.image_folder import read_image_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_digits(tmp_path / "digits", train=3, val=2, classes=2)


def _remove(path: Path) -> None:
    for each in path.iterdir():
        each.unlink()


def test_labels_are_the_sorted_classes_of_train(folder: Path, tmp_path: Path) -> None:
    found = read_image_folder(folder, tmp_path / "kept")
    assert (found.num_classes, found.num_train, found.num_val) == (2, 6, 4)
    splits = json.loads(found.listing.read_text())["splits"]
    assert splits["val"] == [
        ["val/0/003.jpg", 0],
        ["val/0/004.jpg", 0],
        ["val/1/003.jpg", 1],
        ["val/1/004.jpg", 1],
    ]


def test_a_folder_is_decoded_once_and_again_when_a_file_changes(
    folder: Path, tmp_path: Path
) -> None:
    messages: list[str] = []
    first = read_image_folder(folder, tmp_path / "kept", report=messages.append)
    again = read_image_folder(folder, tmp_path / "kept", report=messages.append)
    assert (again, len(messages)) == (first, 1)
    Image.new("RGB", (50, 50), "red").save(folder / "train" / "0" / "000.jpg")
    changed = read_image_folder(folder, tmp_path / "kept", report=messages.append)
    assert len(messages) == 2
    assert changed.sha256 != first.sha256


def test_the_same_images_elsewhere_are_the_same_dataset(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    sha256 = read_image_folder(folder, tmp_path / "kept").sha256
    folder.rename(moved)
    assert read_image_folder(moved, tmp_path / "kept").sha256 == sha256


def _no_folder(folder: Path) -> None:
    folder.rename(folder.with_name("gone"))


def _no_val(folder: Path) -> None:
    (folder / "val").rename(folder / "valid")


def _no_classes(folder: Path) -> None:
    for each in (folder / "train").iterdir():
        _remove(each)
        each.rmdir()


def _empty_class(folder: Path) -> None:
    _remove(folder / "train" / "1")


def _unknown_class(folder: Path) -> None:
    (folder / "val" / "1").rename(folder / "val" / "wolf")


def _broken_jpg(folder: Path) -> None:
    path = folder / "train" / "1" / "001.jpg"
    path.write_bytes(path.read_bytes()[:300])


def _not_an_image(folder: Path) -> None:
    (folder / "val" / "0" / "003.jpg").write_text("no image")


def _loop(folder: Path) -> None:
    path = folder / "train" / "0" / "000.jpg"
    path.unlink()
    path.symlink_to(path)


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "train" / "0" / "pipe.jpg")


def _not_utf8(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder / "train" / "0") + b"/\xff.jpg")).touch()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_no_folder, "has no folder 'train'"),
        (_no_val, "has no folder 'val'"),
        (_no_classes, "wanted classes in .*train.*, got none"),
        (_empty_class, "wanted images .* in every class, got none in .*train/1"),
        (_unknown_class, "classes of val/ that are in train/, got 'wolf'"),
        (_broken_jpg, "got 1 broken in .*'train/1/001.jpg'.*--skip-broken"),
        (_not_an_image, "got 1 broken in .*'val/0/003.jpg'.*--skip-broken"),
        (_loop, "wanted image files, got .*000.jpg"),
        (_pipe, "wanted image files, got .*pipe.jpg', which is not a file"),
        (_not_utf8, "wanted file names in UTF-8"),
    ],
)
def test_an_unusable_image_folder_is_refused_by_name(
    folder: Path, tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    spoil(folder)
    with pytest.raises(UserError, match=words):
        read_image_folder(folder, tmp_path / "kept")


def test_broken_images_are_left_out_on_request(folder: Path, tmp_path: Path) -> None:
    _broken_jpg(folder)
    with pytest.raises(UserError):
        read_image_folder(folder, tmp_path / "kept")
    found = read_image_folder(folder, tmp_path / "kept", skip_broken=True)
    assert (found.num_train, found.skipped) == (5, ("train/1/001.jpg",))


def test_hidden_files_and_notes_are_no_images(folder: Path, tmp_path: Path) -> None:
    (folder / "train" / "0" / ".DS_Store").touch()
    (folder / "train" / "0" / "._000.jpg").touch()
    (folder / "train" / "0" / "labels.txt").touch()
    (folder / "train" / "README").touch()
    assert read_image_folder(folder, tmp_path / "kept").num_train == 6


def test_images_may_be_symbolic_links(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.png"
    Image.fromarray(np.full((9, 9), 40000, np.uint16)).save(elsewhere)
    (folder / "train" / "0" / "linked.png").symlink_to(elsewhere)
    assert read_image_folder(folder, tmp_path / "kept").num_train == 7

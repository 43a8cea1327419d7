"""Image folders: `train/<class>/*.jpg` and `val/<class>/*.jpg`, with every file checked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchcore.cell.loader.decoding import BrokenImageError, decode
from benchcore.cell.measure.host import usable_cpus
from benchcore.errors import MOST_SHOWN, UserError, and_more, show
from benchcore.planning.datasets.dataset import Dataset
from benchcore.protocol import write_json

_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_SPLITS = ("train", "val")
_MOST_CLASSES = 1000
"""The networks here have as many logits."""
_MOST_NAMED = 5


def read_image_folder(
    root: Path,
    cache: Path,
    *,
    skip_broken: bool = False,
    report: Callable[[str], None] = lambda text: None,
) -> Dataset:
    """Decode every image once and store the listing in `cache`, by the files' sizes and times.

    Labels are the sorted names of `train/`. Raises UserError for a folder that is laid out
    otherwise, for a class that is empty or unknown, and for images that are broken.
    """
    found = {split: list(_list_images(root, split)) for split in _SPLITS}
    classes = sorted({name for name, _ in found["train"]})
    _check_classes(root, classes, {name for name, _ in found["val"]})
    images = [(split, name, path) for split in _SPLITS for name, path in found[split]]
    cached = cache / f"{_fingerprint(root, [path for *_, path in images])}.json"
    if not _is_json(cached):
        report(f"decoding {len(images)} images of {root.name!r} once, to check that none is broken")
        cache.mkdir(parents=True, exist_ok=True)
        write_json(cached, _check_images(root, classes, images))
    listing = json.loads(cached.read_text(encoding="utf-8"))
    if listing["broken"] and not skip_broken:
        raise UserError(_format_broken(root, listing["broken"]))
    return Dataset(
        name=root.resolve().name,
        listing=cached,
        sha256=listing["sha256"],
        num_classes=len(classes),
        num_train=len(listing["splits"]["train"]),
        num_val=len(listing["splits"]["val"]),
        skipped=tuple(name for name, _ in listing["broken"]),
    )


def _list_images(root: Path, split: str) -> Iterator[tuple[str, Path]]:
    """(class, file), sorted. Two levels deep and no deeper, so that no link can lead in circles."""
    folder = root / split
    if not folder.is_dir():
        raise UserError(
            f"wanted a folder with train/CLASS/*.jpg and val/CLASS/*.jpg, got {show(root)}, which "
            f"has no folder {split!r}; name another with --dataset"
        )
    for each in _visible(folder):
        if not each.is_dir():
            continue
        files = [path for path in _visible(each) if path.suffix.lower() in _ENDINGS]
        if not files:
            raise UserError(
                f"wanted images ({', '.join(_ENDINGS)}) in every class, got none in "
                f"{show(each)}; add some, or remove that folder"
            )
        yield from ((each.name, path) for path in files)


def _visible(folder: Path) -> list[Path]:
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UserError(
            f"wanted to list {show(folder)}, but {error.strerror}; set its permissions"
        ) from error
    for path in paths:
        try:
            path.name.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UserError(f"wanted file names in UTF-8, got {show(path)}; rename it") from error
    return paths


def _is_json(path: Path) -> bool:
    """Whether the file is there, and no crash has damaged it."""
    try:
        return bool(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False


def _check_classes(root: Path, classes: list[str], in_val: set[str]) -> None:
    if not classes or not in_val:
        split = "val" if classes else "train"
        raise UserError(
            f"wanted classes in {show(root / split)}, got none; make a folder there for each"
        )
    if unknown := sorted(in_val - set(classes)):
        raise UserError(
            f"wanted classes of val/ that are in train/, got {unknown[0][:MOST_SHOWN]!r}"
            f"{and_more(len(unknown) - 1)}; remove them, or add images of them to train/"
        )
    if len(classes) > _MOST_CLASSES:
        raise UserError(
            f"wanted at most {_MOST_CLASSES} classes, as many as the networks have logits, got "
            f"{len(classes)}; use fewer classes"
        )


def _fingerprint(root: Path, paths: list[Path]) -> str:
    """Hash of names, sizes and times, which shows without reading them that files are the same."""
    sha = hashlib.sha256(os.fsencode(root.resolve()))
    for path in paths:
        try:
            stat = path.stat()
            regular = path.is_file()
        except OSError as error:
            raise UserError(
                f"wanted image files, got {show(path)}, and {error.strerror}; remove it"
            ) from error
        if not regular:
            raise UserError(f"wanted image files, got {show(path)}, which is not a file; remove it")
        sha.update(f"{path.relative_to(root)}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    return sha.hexdigest()[:32]


def _check_images(
    root: Path, classes: list[str], images: list[tuple[str, str, Path]]
) -> dict[str, Any]:
    labels = {name: label for label, name in enumerate(classes)}
    splits: dict[str, list[tuple[str, int]]] = {split: [] for split in _SPLITS}
    broken: list[tuple[str, str]] = []
    sha = hashlib.sha256()
    with ThreadPoolExecutor(usable_cpus()) as pool:
        looked = pool.map(lambda each: _digest(each[2]), images)
        for (split, name, path), (digest, why) in zip(images, looked, strict=True):
            relative = path.relative_to(root).as_posix()
            if why is not None:
                broken.append((relative, why))
                continue
            splits[split].append((relative, labels[name]))
            sha.update(f"{relative}\0{labels[name]}\0{digest}\0".encode())
    return {
        "root": str(root.absolute()),
        "splits": splits,
        "broken": broken,
        "sha256": sha.hexdigest(),
    }


def _digest(path: Path) -> tuple[str, str | None]:
    """SHA-256 of the file, and why it is broken; None = it can be decoded."""
    try:
        content = path.read_bytes()
        decode(path)
    except OSError as error:
        return "", str(error.strerror)
    except BrokenImageError as error:
        return "", str(error)
    return hashlib.sha256(content).hexdigest(), None


def _format_broken(root: Path, broken: list[tuple[str, str]]) -> str:
    named = "; ".join(
        f"{name[-MOST_SHOWN:]!r} ({why[:MOST_SHOWN]!r})" for name, why in broken[:_MOST_NAMED]
    )
    return (
        f"wanted images that can be decoded, got {len(broken)} broken in {show(root)}: {named}"
        f"{and_more(len(broken) - _MOST_NAMED)}; replace them, or leave them out: --skip-broken"
    )

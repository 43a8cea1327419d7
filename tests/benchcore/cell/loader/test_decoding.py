"""Every kind of image becomes 8-bit RGB, and crops follow seed and rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchcore.cell.loader.decoding import (
    BrokenImageError,
    crop_for_training,
    crop_for_validation,
    decode,
)

_GREY = np.tile(np.linspace(0, 255, 32, dtype=np.uint8), (32, 1))


def _save(folder: Path, mode: str) -> Path:
    path = folder / f"{mode.replace(';', '-')}.png"
    if mode == "I;16":
        Image.fromarray(_GREY.astype(np.uint16) * 257).save(path)
    elif mode == "CMYK":
        path = path.with_suffix(".jpg")
        Image.fromarray(_GREY).convert("RGB").convert("CMYK").save(path, quality=100)
    else:
        Image.fromarray(_GREY).convert(mode).save(path)
    return path


@pytest.mark.parametrize("mode", ["L", "I;16", "CMYK", "P", "RGBA", "LA", "RGB"])
def test_every_mode_becomes_the_same_rgb(tmp_path: Path, mode: str) -> None:
    image = decode(_save(tmp_path, mode))
    assert image.mode == "RGB"
    found = np.asarray(image).astype(int)
    assert np.abs(found - _GREY[..., None]).max() <= (3 if mode == "CMYK" else 0)


def test_an_image_is_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turned by a quarter
    Image.new("RGB", (20, 10)).save(tmp_path / "turned.jpg", exif=exif)
    assert decode(tmp_path / "turned.jpg").size == (10, 20)


@pytest.mark.parametrize("content", [b"", b"no image", b"\xff\xd8\xff\xe0 truncated"])
def test_a_file_that_is_not_an_image_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.jpg").write_bytes(content)
    with pytest.raises(BrokenImageError):
        decode(tmp_path / "broken.jpg")


@pytest.mark.parametrize("kind", ["GIF", "EPS", "PCX"])
def test_an_image_of_another_format_is_not_opened_whatever_its_name(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "photo.jpg"
    Image.new("RGB", (20, 10)).save(path, format=kind)
    with Image.open(path) as opened:
        assert opened.format == kind
    with pytest.raises(BrokenImageError, match="cannot identify"):
        decode(path)


def test_an_image_that_would_fill_the_memory_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (100, 100)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9_000)
    with pytest.raises(BrokenImageError, match="Bomb"):
        decode(tmp_path / "bomb.png")


@pytest.mark.parametrize("size", [(300, 200), (200, 300), (20, 500), (6, 6)])
def test_validation_takes_the_centre(size: tuple[int, int]) -> None:
    image = Image.new("RGB", size, "black")
    wide, high = size
    image.paste("white", (wide // 2 - 1, high // 2 - 1, wide // 2 + 1, high // 2 + 1))
    found = crop_for_validation(image, 64)
    assert found.shape == (64, 64, 3)
    rows, columns = np.nonzero(found[..., 0] > found.max() / 2)
    assert abs(rows.mean() - 31.5) < 3
    assert abs(columns.mean() - 31.5) < 3


def test_training_crops_differ_by_seed_and_only_by_seed() -> None:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (90, 120, 3), dtype=np.uint8))
    crops = [crop_for_training(image, 32, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert crops[0].shape == (32, 32, 3)
    assert np.array_equal(crops[0], crops[1])
    assert not np.array_equal(crops[0], crops[2])


def test_half_of_the_training_crops_are_mirrored() -> None:
    ramp = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8)[:, None], (256, 1, 3)))
    crops = [crop_for_training(ramp, 16, np.random.default_rng(seed)) for seed in range(200)]
    mirrored = sum(int(crop[0, 0, 0]) > int(crop[0, -1, 0]) for crop in crops)
    assert 70 < mirrored < 130

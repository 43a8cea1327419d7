"""Decodes, crops and flips an image file into the bytes that both sides get."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps

Split = Literal["train", "val"]

_RESIZE = 256 / 224
"""Validation: the shorter side becomes 256 for a crop of 224, in proportion for other crops."""
_AREA = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)
_ATTEMPTS = 10
_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "PPM")
"""What Pillow may take a file for, whatever its name: EPS, for one, would run Ghostscript."""


class BrokenImageError(Exception):
    """The file is not an image that can be decoded."""


def decode(path: Path) -> Image.Image:
    """The image upright and in 8-bit RGB. Raises BrokenImageError.

    16-bit greyscale is scaled by 1/257, which maps 65535 to 255. Pillow converts palettes, CMYK and
    transparency.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.simplefilter("ignore", UserWarning)  # broken EXIF data
            with Image.open(path, formats=_FORMATS) as opened:
                opened.load()
                return _to_rgb(ImageOps.exif_transpose(opened))
    except Exception as error:
        raise BrokenImageError(f"{type(error).__name__}: {error}") from error


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        deep = np.asarray(image, dtype=np.float64)
        return Image.fromarray(np.clip(deep / 257, 0, 255).round().astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


def crop_for_validation(image: Image.Image, side: int) -> np.ndarray:
    """Resize the shorter side (bilinear), then crop the centre: (side, side, 3) uint8."""
    wide, high = image.size
    scale = round(side * _RESIZE) / min(wide, high)
    resized = image.resize(
        (max(side, round(wide * scale)), max(side, round(high * scale))),
        Image.Resampling.BILINEAR,
    )
    left, top = (resized.width - side) // 2, (resized.height - side) // 2
    return np.asarray(resized.crop((left, top, left + side, top + side)))


def crop_for_training(image: Image.Image, side: int, rng: np.random.Generator) -> np.ndarray:
    """Crop a random part of 8 to 100 % of the area with an aspect ratio of 3/4 to 4/3, resize it,
    and flip half of them: torchvision's `RandomResizedCrop` and `RandomHorizontalFlip`."""
    box = _draw_box(image.width, image.height, rng)
    mirrored = rng.random() < 0.5
    cropped = image.resize((side, side), Image.Resampling.BILINEAR, box=box)
    return np.asarray(ImageOps.mirror(cropped) if mirrored else cropped)


def _draw_box(wide: int, high: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    for _ in range(_ATTEMPTS):
        area = wide * high * rng.uniform(*_AREA)
        ratio = math.exp(rng.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        box_wide, box_high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < box_wide <= wide and 0 < box_high <= high:
            left = int(rng.integers(0, wide - box_wide + 1))
            top = int(rng.integers(0, high - box_high + 1))
            return left, top, left + box_wide, top + box_high
    edge = min(wide, high)
    left, top = (wide - edge) // 2, (high - edge) // 2
    return left, top, left + edge, top + edge


def load_pixels(
    path: Path, side: int, *, split: Split, make_rng: Callable[[], np.random.Generator]
) -> np.ndarray:
    """One file as (side, side, 3) uint8. Raises BrokenImageError."""
    image = decode(path)
    if split == "val":
        return crop_for_validation(image, side)
    return crop_for_training(image, side, make_rng())

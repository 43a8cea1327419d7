"""Writes image folders for tests: drawn digits, each on its own noise, as jpgs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont


def write_digits(
    root: Path, *, train: int = 8, val: int = 4, classes: int = 2, side: int = 40
) -> Path:
    """Write `train` and `val` images per digit to `root/{train,val}/<digit>/NUMBER.jpg`."""
    font = ImageFont.load_default(side * 0.8)
    for digit in range(classes):
        for number in range(train + val):
            noise = np.random.default_rng((digit, number)).integers(0, 96, (side, side, 3))
            image = Image.fromarray(noise.astype(np.uint8))
            place = (side / 2 + number % 3 - 1, side / 2)
            ImageDraw.Draw(image).text(place, str(digit), fill="white", font=font, anchor="mm")
            folder = root / ("train" if number < train else "val") / str(digit)
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{number:03}.jpg")
    return root

"""Writes image folders for tests: scikit-learn's digits, real images with real labels, as jpgs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits


def write_digits(
    root: Path, *, train: int = 8, val: int = 4, classes: int = 2, side: int = 40
) -> Path:
    """So many digits a class, 8 x 8 pixels enlarged, in `root/{train,val}/<digit>/NUMBER.jpg`."""
    digits = load_digits()
    for digit in range(classes):
        images = digits.images[digits.target == digit]
        for number, image in enumerate(images[: train + val]):
            folder = root / ("train" if number < train else "val") / str(digit)
            folder.mkdir(parents=True, exist_ok=True)
            grey = Image.fromarray((image * 15.9).astype(np.uint8)).convert("RGB")
            grey.resize((side, side), Image.Resampling.BICUBIC).save(folder / f"{number:03}.jpg")
    return root

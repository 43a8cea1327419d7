"""The photographs that image inputs are proven on: real edges and colours, not only noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchcore.protocol import name_part


def write_photographs(path: Path) -> Path:
    """Keep scikit-learn's two, of 427 x 640 pixels, where the inside ring can read them (numpy)."""
    if not path.exists():
        from sklearn.datasets import load_sample_image

        names = ("china", "flower")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = name_part(path)
        with part.open("wb") as stream:
            np.savez(stream, **{name: load_sample_image(f"{name}.jpg") for name in names})
        part.rename(path)
    return path

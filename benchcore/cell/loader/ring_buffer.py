"""Layout of the ring buffer: memory-mapped slots that pass batches to the contenders."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from benchcore.protocol import Layout

_ALIGNED_BYTES = 64
"""Arrays begin at multiples of it: PyTorch takes none that is not aligned to its items."""

Row = Mapping[str, Any]
"""A `RowOrder` as the order's JSON stores it."""


def slot_bytes(batch: int, rows: Iterable[Row]) -> int:
    """Size of a slot: the batch's arrays, one after the other."""
    return sum(_array_bytes(batch, row) for row in rows)


def _array_bytes(batch: int, row: Row) -> int:
    size = batch * math.prod(row["shape"]) * np.dtype(row["dtype"]).itemsize
    return -(-size // _ALIGNED_BYTES) * _ALIGNED_BYTES


def slot_arrays(
    ring: mmap.mmap, slot: int, *, batch: int, rows: Iterable[Row], layout: Layout
) -> dict[str, np.ndarray]:
    """Views by name, each (batch, *shape). Images are (batch, 3, side, side) in `NCHW`. Labels of
    -1 stand for no example."""
    rows = list(rows)
    start = slot * slot_bytes(batch, rows)
    arrays: dict[str, np.ndarray] = {}
    for row in rows:
        shape = (batch, *row["shape"])
        if layout == "NCHW" and len(shape) == 4:
            shape = (batch, shape[3], *shape[1:3])
        arrays[row["name"]] = np.ndarray(shape, row["dtype"], ring, start)
        start += _array_bytes(batch, row)
    return arrays


def upright(array: np.ndarray, layout: Layout) -> np.ndarray:
    """A view of images as (batch, height, width, channels); other arrays as they are."""
    return array.transpose(0, 2, 3, 1) if layout == "NCHW" and array.ndim == 4 else array

"""Layout of the ring buffer: memory-mapped slots that pass batches to the contenders."""

from __future__ import annotations

import mmap

import numpy as np

from benchcore.protocol import Layout

_LABEL_BYTES = 4


def slot_bytes(batch: int, side: int) -> int:
    """Size of a slot: images with one byte per channel, and one label each."""
    return batch * (side * side * 3 + _LABEL_BYTES)


def slot_arrays(
    ring: mmap.mmap, slot: int, *, batch: int, side: int, layout: Layout
) -> tuple[np.ndarray, np.ndarray]:
    """Views: images uint8 (batch, side, side, 3), or (batch, 3, side, side) in `NCHW`, and labels
    int32 (batch,), -1 = no image."""
    shape = (batch, side, side, 3) if layout == "NHWC" else (batch, 3, side, side)
    start = slot * slot_bytes(batch, side)
    images = np.ndarray(shape, np.uint8, ring, start)
    return images, np.ndarray((batch,), np.int32, ring, start + images.nbytes)

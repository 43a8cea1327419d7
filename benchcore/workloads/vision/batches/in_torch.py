"""Batches of a data set in PyTorch. Images are sent as uint8 and normalised on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from benchcore.program import ByName
from benchcore.workloads.vision.pixels import DEVIATION, MEAN


@dataclass(frozen=True)
class Batch:
    """Arrays by name: uint8 images (batch, 3, height, width) in their memory format or others, and
    int32 labels last; `arrived` is None if there is no transfer to wait for."""

    arrays: Mapping[str, torch.Tensor]
    arrived: torch.cuda.Event | None = None

    def fetch(self, device: torch.device) -> Mapping[str, torch.Tensor]:
        """The arrays, for the current stream, which waits for the transfer."""
        if self.arrived is not None:
            here = torch.cuda.current_stream(device)
            here.wait_event(self.arrived)
            for each in self.arrays.values():
                each.record_stream(here)
        return self.arrays


def make_stage(device: torch.device, *, channels_last: bool) -> Callable[[ByName], Batch]:
    """Returns a function that copies to host memory, pinned if the device is a GPU (not run)."""

    def stage(batch: ByName) -> Batch:
        copies = {name: torch.from_numpy(np.array(array)) for name, array in batch.items()}
        if device.type == "cuda":
            copies = {name: each.pin_memory() for name, each in copies.items()}
        if channels_last and "images" in copies:
            copies["images"] = copies["images"].permute(0, 3, 1, 2)
        return Batch(copies)

    return stage


def make_send(device: torch.device) -> Callable[[Batch], Batch]:
    """Returns a copy to a GPU on a separate stream, parallel to the current step (not run)."""
    if device.type != "cuda":
        return lambda staged: staged
    stream = torch.cuda.Stream(device)

    def send(staged: Batch) -> Batch:
        with torch.cuda.stream(stream):
            sent = {
                name: each.to(device, non_blocking=True) for name, each in staged.arrays.items()
            }
            return Batch(sent, stream.record_event())

    return send


def make_prepare(
    device: torch.device, dtype: torch.dtype
) -> Callable[[Batch], tuple[torch.Tensor, torch.Tensor]]:
    """Returns the normalisation: uint8 images to the case's dtype, in the same memory format."""
    mean, deviation = (
        torch.tensor(each, device=device).reshape(1, 3, 1, 1) for each in (MEAN, DEVIATION)
    )

    def prepare(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        arrays = batch.fetch(device)
        scaled = arrays["images"].to(torch.float32).div_(255)
        return scaled.sub_(mean).div_(deviation).to(dtype), arrays["labels"].long()

    return prepare

"""Batches of image files in PyTorch: sent to the device as uint8 and normalised there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from benchcore.workloads.vision.pixels import DEVIATION, MEAN


@dataclass(frozen=True)
class Batch:
    """uint8 images (batch, 3, height, width) in their memory format, and int32 labels; `arrived`
    is None if there is no transfer to wait for."""

    images: torch.Tensor
    labels: torch.Tensor
    arrived: torch.cuda.Event | None = None


def make_stage(device: torch.device, *, channels_last: bool) -> Callable[..., Batch]:
    """Returns a function that copies to host memory, pinned if the device is a GPU (not run)."""

    def stage(images: np.ndarray, labels: np.ndarray) -> Batch:
        copies = [torch.from_numpy(np.array(each)) for each in (images, labels)]
        if device.type == "cuda":
            copies = [each.pin_memory() for each in copies]
        pixels = copies[0].permute(0, 3, 1, 2) if channels_last else copies[0]
        return Batch(pixels, copies[1])

    return stage


def make_send(device: torch.device) -> Callable[[Batch], Batch]:
    """Returns a copy to a GPU on a separate stream, parallel to the current step (not run)."""
    if device.type != "cuda":
        return lambda staged: staged
    stream = torch.cuda.Stream(device)

    def send(staged: Batch) -> Batch:
        with torch.cuda.stream(stream):
            images = staged.images.to(device, non_blocking=True)
            labels = staged.labels.to(device, non_blocking=True)
            return Batch(images, labels, stream.record_event())

    return send


def make_prepare(
    device: torch.device, dtype: torch.dtype
) -> Callable[[Batch], tuple[torch.Tensor, torch.Tensor]]:
    """Returns the normalisation: uint8 images to the case's dtype, in the same memory format."""
    mean, deviation = (
        torch.tensor(each, device=device).reshape(1, 3, 1, 1) for each in (MEAN, DEVIATION)
    )

    def prepare(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        if batch.arrived is not None:
            here = torch.cuda.current_stream(device)
            here.wait_event(batch.arrived)
            batch.images.record_stream(here)
            batch.labels.record_stream(here)
        scaled = batch.images.to(torch.float32).div_(255)
        return scaled.sub_(mean).div_(deviation).to(dtype), batch.labels.long()

    return prepare

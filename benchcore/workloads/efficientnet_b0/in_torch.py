"""EfficientNet-B0 in PyTorch: torchvision's own."""

from __future__ import annotations

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.vision import in_torch as vision
from benchcore.workloads.vision.case import Case


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    return vision.build(case, arrays, settings, constructor="efficientnet_b0")

"""ViT-B/16 in PyTorch: torchvision's own, in tiny cases with fewer blocks."""

from __future__ import annotations

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.vision import in_torch as vision
from benchcore.workloads.vision.case import Case
from benchcore.workloads.vit_b_16.spec import FEATURES, HEADS, HIDDEN, PATCH


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the network on the device in the settings."""
    if case.depth is None:
        return vision.build(case, arrays, settings, constructor="vit_b_16", image_size=case.side)
    return vision.build(
        case,
        arrays,
        settings,
        constructor="VisionTransformer",
        image_size=case.side,
        patch_size=PATCH,
        num_layers=case.depth,
        num_heads=HEADS,
        hidden_dim=FEATURES,
        mlp_dim=HIDDEN,
    )

"""ResNet-50 v1.5 in PyTorch: torchvision's own model, NCHW unless the settings say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.resnet50.spec import SETTINGS, Case
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set the network up on the device that the settings name."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    last = wanted.layout == "channels_last"
    memory_format = torch.channels_last if last else torch.contiguous_format
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    model = _import_resnet50()(weights=None)
    model.load_state_dict(_state_dict(model, arrays.params), strict=True)
    model = model.eval().to(wanted.device, dtype, memory_format=memory_format)
    images = torch.tensor(arrays.inputs["images"], device=wanted.device, dtype=dtype)
    images = images.contiguous(memory_format=memory_format)

    def autocast(images: torch.Tensor) -> torch.Tensor:
        with torch.autocast(wanted.platform, torch.bfloat16):
            return model(images)

    forward = autocast if case.precision == "bf16_autocast" else model
    compiled = forward
    if wanted.compile != "none":
        compiled = torch.compile(forward, mode=wanted.compile, fullgraph=True)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            return compiled(images)

    def held() -> dict[str, object]:
        return {
            "module": model,
            "params": list(model.parameters()),
            "inputs": [images],
            "compile_mode": wanted.compile,
            "output_dtype": step().dtype,
        }

    return Program(
        step=step, evidence=lambda: {"logits": step().float().cpu().numpy().copy()}, held=held
    )


def _state_dict(
    model: torch.nn.Module, params: Mapping[str, np.ndarray]
) -> dict[str, torch.Tensor]:
    """The canonical arrays and the counters they leave out, which inference does not read."""
    counters = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name.endswith("num_batches_tracked")
    }
    return counters | {name: torch.tensor(array) for name, array in params.items()}


def _import_resnet50() -> Callable[..., torch.nn.Module]:
    """torchvision's constructor, also where torchvision and torch were built apart.

    Beside a torch of another build (pytorch/vision#9085) torchvision finds its own operators
    missing and its import fails at the first one it looks up. ResNet-50 needs none of them:
    naming the two that are looked up lets the import go through.
    """
    try:
        from torchvision.models import resnet50
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
        _declare_operators()
        from torchvision.models import resnet50
    return resnet50


_declared: list[torch.library.Library] = []
"""A declaration lasts as long as its library object."""


def _declare_operators() -> None:
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)

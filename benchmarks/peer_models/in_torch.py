"""timm's model of the same name as timm's own benchmark runs it: eager, `no_grad`.

And Opacus' hooks on our network, without the batch's gradient, which its users pay for, too.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from benchcore.program import Arrays, Program

_TIMM = {"resnet50": "resnet50", "vit_b_16": "vit_base_patch16_224"}
_VIT_NAMES = (
    (r"^conv_proj", "patch_embed.proj"),
    (r"^class_token", "cls_token"),
    (r"^encoder\.pos_embedding", "pos_embed"),
    (r"^encoder\.layers\.encoder_layer_(\d+)", r"blocks.\1"),
    (r"\.ln_(\d)", r".norm\1"),
    (r"\.self_attention\.in_proj_", ".attn.qkv."),
    (r"\.self_attention\.out_proj", ".attn.proj"),
    (r"\.mlp\.0", ".mlp.fc1"),
    (r"\.mlp\.3", ".mlp.fc2"),
    (r"^encoder\.ln", "norm"),
    (r"^heads\.head", "head"),
)


def build(case: Any, arrays: Arrays, settings: Mapping[str, Any]) -> Program:
    """Ours or timm's, as the setting `side` says; the same weights in both."""
    given = dict(settings)
    side = given.pop("side")
    workload = importlib.import_module(f"{__package__}.spec").WORKLOAD
    if side in ("ours", "opacus"):
        module = importlib.import_module(f"benchcore.workloads.{workload}.in_torch")
        with_hooks = {"per_sample": "opacus"} if side == "opacus" else {}
        return module.build(case, arrays, given | with_hooks)
    import timm  # pyright: ignore[reportMissingImports]

    model = timm.create_model(_TIMM[workload], num_classes=1000).eval()
    named = {rename(workload, name): torch.tensor(each) for name, each in arrays.params.items()}
    counters = {n: t for n, t in model.state_dict().items() if n.endswith("num_batches_tracked")}
    model.load_state_dict(named | counters, strict=True)

    def step(inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        with torch.no_grad():
            return model(*inputs)

    return Program(
        place=lambda inputs: (torch.tensor(inputs["images"]),),
        step=step,
        read=lambda logits: {"logits": np.array(logits)},
        held=lambda inputs: {
            "module": model,
            "params": list(model.parameters()),
            "inputs": inputs,
        },
    )


def rename(workload: str, name: str) -> str:
    """timm's name of what torchvision calls `name`; timm's ResNet has torchvision's."""
    for old, new in _VIT_NAMES if workload == "vit_b_16" else ():
        name = re.sub(old, new, name)
    return name

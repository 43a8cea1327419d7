"""Names in words: `ResNet-50, training, batch 128, bf16`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from benchcore.protocol import DEFAULT_TRACK
from dashboards.formatting import FRAMEWORKS, arm_label, is_missing

_MODELS = {
    "mlp": "MLP",
    "resnet50": "ResNet-50",
    "vit_b_16": "ViT-B/16",
    "mobilenet_v3_small": "MobileNetV3-Small",
    "efficientnet_b0": "EfficientNet-B0",
    "mnist_cnn": "MNIST CNN",
    "cifar_resnet": "CIFAR ResNet",
    "text_classifier": "Text classifier",
    "small_lm": "Small language model",
    "graph_gcn": "Graph GCN",
    "matmul": "Matrix product",
    "copy": "Memory copy",
    "noop": "Empty step",
    "ops": "Operations",
    "convolution": "Convolution",
    "ensemble": "Ensemble",
    "kernels": "Fused kernels",
    "recompile": "New shapes",
}
_USE_CASES = {
    "train": "training",
    "infer": "inference",
    "op": "operation",
    "gradient": "gradients",
    "per_sample_grad": "per-sample gradients",
}
_PRECISIONS = {"fp32_ieee": "fp32", "float32": "fp32", "bf16_autocast": "bf16 autocast"}


def name_model(workload: str) -> str:
    """`ResNet-50` of `resnet50`; another workload's name without underscores."""
    return _MODELS.get(workload, workload.replace("_", " "))


def order_words(*words: str) -> list[Any]:
    """A key that sorts numbers within words as numbers: batch 8 before batch 128."""
    parts = re.split(r"(\d+)", " ".join(words))
    return [int(part) if part.isdecimal() else part for part in parts]


def name_use_case(use_case: str) -> str:
    """`training` of `train`."""
    return _USE_CASES.get(use_case, use_case.replace("_", " "))


def name_precision(precision: str) -> str:
    """`fp32` of `fp32_ieee`."""
    return _PRECISIONS.get(precision, precision.replace("_", " "))


def name_rest(row: Mapping[str, Any]) -> str:
    """What a case's name says beyond use case, batch and precision, such as `224px`, or `on 2
    devices` of `x2`."""
    known = {f"b{row['batch']}", *str(row["precision"]).split("_")}
    name = re.sub(rf"(^|_){row['use_case']}(_|$)", "_", str(row["case_name"]))
    parts = [each for each in name.split("_") if each and each not in known]
    return " ".join(re.sub(r"^x(\d+)$", r"on \1 devices", each) for each in parts)


def name_setting(row: Mapping[str, Any]) -> str:
    """A case without its batch: `ResNet-50, training, bf16`; the track if it is not the default."""
    return _join_names(row)


def name_case_in_words(row: Mapping[str, Any]) -> str:
    """`ResNet-50, training, batch 128, bf16`."""
    return _join_names(row, f"batch {int(row['batch'])}")


def _join_names(row: Mapping[str, Any], batch: str = "") -> str:
    """Without the use case of what is nothing but an operation."""
    track = row.get("track")
    tuned = None if is_missing(track) or track == DEFAULT_TRACK else f"{track} track"
    parts = (
        name_model(str(row["workload"])),
        "" if row["use_case"] == "op" else name_use_case(str(row["use_case"])),
        batch,
        name_precision(str(row["precision"])),
        name_rest(row),
        tuned,
    )
    return ", ".join(part for part in parts if part)


def name_arm(framework: str, arm: str) -> str:
    """`PyTorch compiled`."""
    return f"{FRAMEWORKS.get(framework, framework)} {arm_label(arm)}".strip()


def name_file(*parts: object) -> str:
    """A name for a file or an address from names that may hold anything."""
    return ".".join(re.sub(r"[^A-Za-z0-9_-]+", "-", str(part)) for part in parts if part)

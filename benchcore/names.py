"""Names and percentages for people: of frameworks, arms, workloads, cases and CPUs; in text, on
pages and in alerts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from benchcore.protocol import DEFAULT_TRACK, Status

FRAMEWORK_NAMES = {"jax": "JAX", "torch": "PyTorch", "stdlib": "Python"}
_ARMS = {
    "jit": "",
    "stdlib": "",
    "compile": "compiled",
    "fully-sharded": "fully sharded",
    "tensor": "tensor parallel",
    "channels-last": "channels last",
    "no-donation": "without donation",
    "no-command-buffers": "without command buffers",
    "reduce-overhead": "reduce-overhead",
    "max-autotune": "max-autotune",
    "max-autotune-no-cudagraphs": "max-autotune without CUDA graphs",
}
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
    "per_sample_grad": "per-sample gradients",
    "train": "training",
    "infer": "inference",
    "op": "operation",
    "gradient": "gradients",
}
_PRECISIONS = {"fp32_ieee": "fp32", "float32": "fp32", "bf16_autocast": "bf16 autocast"}
_WORDS = {
    "convnet": "ConvNet",
    "mlp": "MLP",
    "fft": "FFT",
    "rms": "RMS",
    "matmul": "matrix product",
}
_PROPERTIES = {
    "tiny": "tiny",
    "small": "small size",
    "medium": "medium size",
    "large": "large size",
    "base": "medium depth",
    "deep": "deep",
    "shallow": "shallow",
    "bucketed": "padded to powers of two",
    "norms": "norms only",
    "gradient": "with gradient",
    "cold": "inputs not in a cache",
    "cpu": "sized for a CPU",
    "gpu": "sized for a GPU",
}
"""Words of a case's name that are a part of their own."""
_NETWORKS = {
    "mlp": "MLP",
    "convnet": "ConvNet",
    "linear": "linear layer",
    "convolution": "convolution",
}
_UNITS = {"m": "MiB", "g": "GiB"}
_ENDS: Mapping[Status, str] = {
    "ok": "finished",
    "workaround": "needed a workaround",
    "oom": "ran out of memory",
    "killed": "was killed",
    "crash": "crashed",
    "timeout": "timed out",
    "numerics": "computed invalid numbers",
    "invalid_physics": "was faster than the device can be",
    "unsupported": "is not supported",
    "environment": "has a broken environment",
}


def arm_label(arm: str) -> str:
    """What distinguishes a framework's arms: `eager`, `compiled, fully sharded`, or nothing."""
    mode = arm.partition("-")[2] if "-" in arm else arm
    if mode in _ARMS:
        return _ARMS[mode]
    first, _, rest = mode.partition("-")
    if first not in ("jit", "compile"):
        return mode.replace("-", " ")
    return ", ".join(filter(None, (_ARMS[first], _ARMS.get(rest, rest.replace("-", " ")))))


def name_arm(framework: str, arm: str) -> str:
    """`PyTorch compiled`."""
    return f"{FRAMEWORK_NAMES.get(framework, framework)} {arm_label(arm)}".strip()


def contender_label(framework: str, version: str | None, arm: str) -> str:
    """`PyTorch 2.15.0 compiled`; None = the version is not known."""
    parts = (FRAMEWORK_NAMES.get(framework, framework), version, arm_label(arm))
    return " ".join(part for part in parts if part)


def describe_status(status: Status) -> str:
    """`ran out of memory` of `oom`: what a contender or a start did."""
    return _ENDS[status]


def name_model(workload: str) -> str:
    """`ResNet-50` of `resnet50`; another workload's name without underscores."""
    return _MODELS.get(workload, workload.replace("_", " "))


def name_use_case(use_case: str) -> str:
    """`training` of `train`."""
    return _USE_CASES.get(use_case, use_case.replace("_", " "))


def name_precision(precision: str) -> str:
    """`fp32` of `fp32_ieee`."""
    return _PRECISIONS.get(precision, precision.replace("_", " "))


def name_rest(row: Mapping[str, Any]) -> str:
    """What a case's name has beyond use case, batch and precision: `112px`, `8 ConvNets`, or `on 2
    devices` of `x2`."""
    named = (str(row[key]) for key in ("batch", "precision", "use_case", "case_name"))
    return _name_rest(*named)


@cache
def _name_rest(batch: str, precision: str, use_case: str, case_name: str) -> str:
    """A page names the same case in many of its rows."""
    known = {f"b{batch}", *precision.split("_")}
    name = re.sub(rf"(^|_){use_case}(_|$)", "_", case_name)
    words = "_".join(each for each in name.split("_") if each and each not in known)
    parts: list[list[str]] = [[]]
    for word in re.findall(rf"(?:{'|'.join(_NETWORKS)})_n\d+|[^_]+", words):
        own = _name_property(word)
        if own:
            parts += [[own], []]
        else:
            parts[-1].append(_WORDS.get(word) or word)
    return ", ".join(" ".join(part) for part in parts if part)


def _name_property(word: str) -> str:
    """`8 ConvNets`, `on 2 devices`, `256 MiB`, `1024 by 1024`, `medium size`; "" = no property."""
    network, _, copies = word.rpartition("_n")
    if network:
        noun = _NETWORKS[network]
        return f"1 {noun}" if copies == "1" else f"{copies} {noun}s"
    if devices := re.fullmatch(r"x(\d+)", word):
        return f"on {devices[1]} devices"
    if shapes := re.fullmatch(r"k(\d+)", word):
        return "1 shape" if shapes[1] == "1" else f"{shapes[1]} shapes"
    if size := re.fullmatch(r"(\d+)([mg])", word):
        return f"{size[1]} {_UNITS[size[2]]}"
    return f"{word} by {word}" if word.isdecimal() else _PROPERTIES.get(word, "")


def name_cpus(model: str, count: int) -> str:
    """Such as `AMD EPYC, 2 CPUs`."""
    return f"{model}, {count} CPU{'' if count == 1 else 's'}"


def name_setting(row: Mapping[str, Any]) -> str:
    """A case without its batch: `ResNet-50, training, bf16`; the track if it is not the default."""
    return _join_names(row)


def name_case_in_words(row: Mapping[str, Any]) -> str:
    """`ResNet-50, training, batch 128, bf16`."""
    return _join_names(row, f"batch {int(row['batch'])}")


def _join_names(row: Mapping[str, Any], batch: str = "") -> str:
    """Without the use case of what is nothing but an operation."""
    track = row.get("track")
    is_other = isinstance(track, str) and track not in ("", DEFAULT_TRACK)
    parts = (
        name_model(str(row["workload"])),
        "" if row["use_case"] == "op" else name_use_case(str(row["use_case"])),
        batch,
        name_precision(str(row["precision"])),
        name_rest(row),
        f"{track} track" if is_other else "",
    )
    return ", ".join(part for part in parts if part)


def format_percent(share: float, decimals: int = 0) -> str:
    """`61 %` of 0.61."""
    return f"{100 * share:.{decimals}f} %"


def format_signed(change: float) -> str:
    """`+5.1 %` of 0.051, and of a fall a minus sign, as on pages."""
    return f"{100 * change:+.1f} %".replace("-", "\u2212")


def format_ends(low: float, high: float) -> str:
    """`+4.1 to +6.2 %` of an interval of relative changes."""
    return f"{format_signed(low).removesuffix(' %')} to {format_signed(high)}"


def format_move(change: float, low: float, high: float) -> str:
    """`+5.1 % (+4.1 to +6.2 %)` of a relative change and its interval."""
    return f"{format_signed(change)} ({format_ends(low, high)})"

"""The profile `breadth`: one base case of every kind of work, planned for an hour on two cores."""

from __future__ import annotations

from collections.abc import Mapping

from benchcore.planning.catalog import load_spec
from benchcore.planning.tracks import (
    CONTROL_ARMS,
    EAGER_ARMS,
    JAX_NEWEST,
    TORCH_COMPILE,
    TORCH_EAGER,
    Arm,
)

BASE_CASES: Mapping[str, tuple[str, ...]] = {
    "mlp": ("infer_b32", "train_b128"),
    "mobilenet_v3_small": ("infer_b8",),
    "efficientnet_b0": ("infer_b1",),
    "resnet50": ("infer_b1",),
    "vit_b_16": ("infer_b1",),
    "mnist_cnn": ("infer_b32",),
    "cifar_resnet": ("infer_b32",),
    "text_classifier": ("infer_b32",),
    "small_lm": ("per_sample_grad_b8",),
    "graph_gcn": ("infer_b32",),
    "ensemble": ("mlp_gradient_n8_b32", "convnet_infer_n8_b1"),
    "convolution": ("dense_3x3", "depthwise_3x3"),
    "kernels": ("rms_norm_linear_b128",),
    "recompile": ("infer_base", "infer_base_bucketed"),
}
"""Cases of workloads that both frameworks have. A CPU takes seconds per step of large models. So
vision models and ensemble ConvNets run with one image. Left out: what `seed0` measures, training
and per-sample gradients of its four networks; training of `small_lm`, which the strategies of two
devices do; the softmax of `kernels`, which on a CPU is that of `ops`; and gradients of ensemble
ConvNets, which take minutes."""
_SIZE = "_medium"
_EAGER = (("ops", "linspace_chain_small"), ("ops", "elementwise_chain_small"))
"""What NumPy's users write: short arrays on the host, and each operation a call of its own."""
_WITH_EAGER_TORCH = frozenset(
    {
        ("mlp", "infer_b32"),
        ("recompile", "infer_base"),
        *(("ops", f"{each}{_SIZE}") for each in ("elementwise_chain", "softmax", "layer_norm")),
    }
)
"""Where fusing, the cost of a call or a new shape is the question, eager PyTorch takes part, too. A
third contender of all cases would take ten minutes more."""

_TOOK_S: Mapping[tuple[str, str], float] = {
    ("vit_b_16", "infer_b1"): 300.0,
    ("small_lm", "per_sample_grad_b8"): 155.0,
    ("mobilenet_v3_small", "infer_b8"): 151.0,
    ("resnet50", "infer_b1"): 144.0,
    ("efficientnet_b0", "infer_b1"): 133.0,
    ("ensemble", "convnet_infer_n8_b1"): 119.0,
    ("text_classifier", "infer_b32"): 88.0,
    ("ensemble", "mlp_gradient_n8_b32"): 84.0,
    ("cifar_resnet", "infer_b32"): 75.0,
    ("mlp", "train_b128"): 65.0,
    **dict.fromkeys(_WITH_EAGER_TORCH, 68.0),
    **dict.fromkeys(_EAGER, 32.0),
}
_USUAL_S = 51.0
"""Seconds of a duel on two cores of an AMD EPYC, in the documents of 2026-11-29."""
_CONTROLS_S: Mapping[tuple[str, str], float] = {
    ("mlp", "infer_b32"): 47.0,
    ("ops", f"attention{_SIZE}"): 48.0,
}
"""The cases that both frameworks' previous versions compute, too, and the seconds that these add:
what the newest versions took."""


def list_breadth() -> list[tuple[str, str]]:
    """Workload and case of every duel but the sentinels; a new operation is in it by itself. One
    that is measured with both sides eager is not measured compiled."""
    operations = [
        case
        for case in load_spec("ops").cases
        if case.endswith(_SIZE) and case != f"linspace_chain{_SIZE}"
    ]
    listed = {**BASE_CASES, "ops": tuple(operations)}
    return [*((workload, case) for workload, cases in listed.items() for case in cases), *_EAGER]


def list_arms(workload: str, case: str) -> tuple[Arm, ...]:
    """Who computes a case: JAX, PyTorch compiled and in some cases eager, too; or both eager."""
    if (workload, case) in _EAGER:
        return EAGER_ARMS
    both = (JAX_NEWEST, TORCH_COMPILE)
    return (*both, TORCH_EAGER) if (workload, case) in _WITH_EAGER_TORCH else both


def list_controls(workload: str, case: str) -> tuple[Arm, ...]:
    """Who computes a case besides, as a control of what the machine does to a night."""
    return CONTROL_ARMS if (workload, case) in _CONTROLS_S else ()


def expect_s(workload: str, case: str) -> float:
    """Seconds that a case's duel will take on two CPU cores, environments in place."""
    took = _TOOK_S.get((workload, case), _USUAL_S)
    return took + _CONTROLS_S.get((workload, case), 0.0)

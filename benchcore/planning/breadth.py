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
    "small_lm": ("infer_b8", "train_b8", "per_sample_grad_b8"),
    "graph_gcn": ("infer_b32",),
    "ensemble": ("mlp_gradient_n8_b32", "convnet_infer_n8_b1"),
    "convolution": ("dense_3x3", "depthwise_3x3"),
    "kernels": ("rms_norm_linear_b128",),
    "recompile": ("infer_base", "infer_base_bucketed"),
}
"""Cases of workloads that both frameworks have. A CPU takes seconds per step of large models. So
vision models and ensemble ConvNets run with one image. Left out: what `seed0` measures, training
and per-sample gradients of its four networks; the softmax of `kernels`, which on a CPU is that of
`ops`; and gradients of ensemble ConvNets, which take minutes."""
_SIZE = "_medium"
_EAGER = (("ops", "linspace_chain_small"), ("ops", "elementwise_chain_small"))
"""What NumPy's users write: short arrays on the host, and each operation a call of its own."""

_SLOW_S: Mapping[tuple[str, str], float] = {
    ("vit_b_16", "infer_b1"): 209.0,
    ("resnet50", "infer_b1"): 146.0,
    ("mobilenet_v3_small", "infer_b8"): 129.0,
    ("efficientnet_b0", "infer_b1"): 120.0,
    ("ensemble", "convnet_infer_n8_b1"): 117.0,
    ("small_lm", "train_b8"): 109.0,
    ("small_lm", "per_sample_grad_b8"): 106.0,
}
"""The slowest go without eager PyTorch, or the profile would take more than an hour."""
_TOOK_S: Mapping[tuple[str, str], float] = {
    **_SLOW_S,
    ("ensemble", "mlp_gradient_n8_b32"): 87.0,
    ("cifar_resnet", "infer_b32"): 85.0,
    ("text_classifier", "infer_b32"): 79.0,
    ("mlp", "train_b128"): 73.0,
    ("small_lm", "infer_b8"): 71.0,
    ("mnist_cnn", "infer_b32"): 63.0,
    **dict.fromkeys(_EAGER, 29.0),
}
_USUAL_S = 58.0
"""Seconds of a duel on two cores of an Intel Xeon, in the documents of 2026-11-26, less what is not
measured any more: stages, blocks and samples of eager PyTorch where it takes no part, and 5 s for
Inductor's trials of the C++ compiler, which since METHOD 3 are no part of a compilation."""
_CONTROLS_S: Mapping[tuple[str, str], float] = {
    ("mlp", "infer_b32"): 30.0,
    ("mnist_cnn", "infer_b32"): 31.0,
    ("convolution", "dense_3x3"): 31.0,
    ("kernels", "rms_norm_linear_b128"): 27.0,
    ("recompile", "infer_base"): 31.0,
    ("ops", f"attention{_SIZE}"): 24.0,
}
"""The cases that both frameworks' previous versions compute, too, and the seconds that these add:
what the newest versions took. For all cases that is 19 minutes more than the hour has."""


def list_breadth() -> list[tuple[str, str]]:
    """Workload and case of every duel but the sentinels; a new operation is in it by itself."""
    operations = [case for case in load_spec("ops").cases if case.endswith(_SIZE)]
    listed = {**BASE_CASES, "ops": tuple(operations)}
    return [*((workload, case) for workload, cases in listed.items() for case in cases), *_EAGER]


def list_arms(workload: str, case: str) -> tuple[Arm, ...]:
    """Who computes a case: JAX, PyTorch compiled and mostly eager, too; or both eager."""
    if (workload, case) in _EAGER:
        return EAGER_ARMS
    slow = (workload, case) in _SLOW_S
    return (JAX_NEWEST, TORCH_COMPILE) if slow else (JAX_NEWEST, TORCH_COMPILE, TORCH_EAGER)


def list_controls(workload: str, case: str) -> tuple[Arm, ...]:
    """Who computes a case besides, as a control of what the machine does to a night."""
    return CONTROL_ARMS if (workload, case) in _CONTROLS_S else ()


def expect_s(workload: str, case: str) -> float:
    """Seconds that a case's duel will take on two CPU cores, environments in place."""
    took = _TOOK_S.get((workload, case), _USUAL_S)
    return took + _CONTROLS_S.get((workload, case), 0.0)

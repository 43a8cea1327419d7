"""The profile `breadth`: one base case of every kind of work, planned for an hour on two cores."""

from __future__ import annotations

from collections.abc import Mapping

from benchcore.planning.catalog import load_spec
from benchcore.planning.tracks import EAGER_ARMS, JAX_NEWEST, TORCH_COMPILE, TORCH_EAGER, Arm

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
    ("vit_b_16", "infer_b1"): 214.0,
    ("resnet50", "infer_b1"): 151.0,
    ("mobilenet_v3_small", "infer_b8"): 134.0,
    ("efficientnet_b0", "infer_b1"): 125.0,
    ("ensemble", "convnet_infer_n8_b1"): 122.0,
    ("small_lm", "train_b8"): 114.0,
    ("small_lm", "per_sample_grad_b8"): 111.0,
}
"""The slowest go without eager PyTorch, or the profile would take more than an hour."""
_TOOK_S: Mapping[tuple[str, str], float] = {
    **_SLOW_S,
    ("ensemble", "mlp_gradient_n8_b32"): 92.0,
    ("cifar_resnet", "infer_b32"): 90.0,
    ("text_classifier", "infer_b32"): 84.0,
    ("mlp", "train_b128"): 78.0,
    ("small_lm", "infer_b8"): 76.0,
    ("mnist_cnn", "infer_b32"): 68.0,
    **dict.fromkeys(_EAGER, 29.0),
}
_USUAL_S = 61.0
"""Seconds of a duel on two cores of an Intel Xeon, in the documents of 2026-11-26. Where eager
PyTorch took part then and does not now, what its own stages, blocks and samples took is off."""


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


def expect_s(workload: str, case: str) -> float:
    """Seconds that a case's duel will take on two CPU cores, environments in place."""
    return _TOOK_S.get((workload, case), _USUAL_S)

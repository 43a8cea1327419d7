"""The profile `breadth`: one base case of every kind of work, planned for an hour on two cores."""

from __future__ import annotations

from collections.abc import Mapping

from benchcore.planning.catalog import load_spec
from benchcore.planning.tracks import EAGER_ARMS, JAX_NEWEST, TORCH_COMPILE, TORCH_EAGER, Arm

_NETWORK = ("infer_b32", "train_b32", "per_sample_grad_b32")
BASE_CASES: Mapping[str, tuple[str, ...]] = {
    "mlp": ("infer_b32", "train_b128"),
    "mobilenet_v3_small": ("infer_b8",),
    "efficientnet_b0": ("infer_b1",),
    "resnet50": ("infer_b1",),
    "vit_b_16": ("infer_b1",),
    "mnist_cnn": _NETWORK,
    "cifar_resnet": ("infer_b32", "train_b32"),
    "text_classifier": ("infer_b32", "train_b32"),
    "small_lm": ("infer_b8", "train_b8", "per_sample_grad_b8"),
    "graph_gcn": _NETWORK,
    "ensemble": ("mlp_gradient_n8_b32", "convnet_infer_n8_b1"),
    "convolution": ("dense_3x3", "depthwise_3x3"),
    "kernels": ("softmax_b128", "rms_norm_linear_b128"),
    "recompile": ("infer_base", "infer_base_bucketed"),
}
"""Cases of workloads that both frameworks have. A CPU takes seconds per step of large models. So
vision models and ensemble ConvNets run with one image. Left out, as they take minutes: per-sample
gradients of texts and of `cifar_resnet`, which `seed0` measures, and gradients of ensemble
ConvNets."""
_SIZE = "_medium"
_EAGER = (("ops", "linspace_chain_small"), ("ops", "elementwise_chain_small"))
"""What NumPy's users write: short arrays on the host, and each operation a call of its own."""

_TOOK_S: Mapping[tuple[str, str], float] = {
    ("vit_b_16", "infer_b1"): 83.0,
    ("mnist_cnn", "per_sample_grad_b32"): 55.0,
    ("small_lm", "per_sample_grad_b8"): 46.0,
    ("text_classifier", "train_b32"): 45.0,
    ("cifar_resnet", "train_b32"): 42.0,
    ("small_lm", "train_b8"): 38.0,
    ("resnet50", "infer_b1"): 35.0,
    ("efficientnet_b0", "infer_b1"): 33.0,
    ("mobilenet_v3_small", "infer_b8"): 32.0,
    ("ensemble", "convnet_infer_n8_b1"): 29.0,
}
"""What the slowest took for each of three contenders on two cores of an AMD EPYC, in the documents
of 2026-11-25; the others took 14 to 25."""
_USUAL_S = 18.0
_SLOW_S = 40.0
"""From here on a case goes without eager PyTorch, or the profile would take more than an hour."""


def list_breadth() -> list[tuple[str, str]]:
    """Workload and case of every duel but the sentinels; a new operation is in it by itself."""
    operations = [case for case in load_spec("ops").cases if case.endswith(_SIZE)]
    listed = {**BASE_CASES, "ops": tuple(operations)}
    return [*((workload, case) for workload, cases in listed.items() for case in cases), *_EAGER]


def list_arms(workload: str, case: str) -> tuple[Arm, ...]:
    """Who computes a case: JAX, PyTorch compiled and mostly eager, too; or both eager."""
    if (workload, case) in _EAGER:
        return EAGER_ARMS
    slow = _TOOK_S.get((workload, case), _USUAL_S) > _SLOW_S
    return (JAX_NEWEST, TORCH_COMPILE) if slow else (JAX_NEWEST, TORCH_COMPILE, TORCH_EAGER)


def expect_s(workload: str, case: str) -> float:
    """Seconds that a case's duel will take on two CPU cores, environments in place."""
    return _TOOK_S.get((workload, case), _USUAL_S) * len(list_arms(workload, case))

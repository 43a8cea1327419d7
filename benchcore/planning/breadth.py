"""The profile `breadth`: one base case of every kind of work, planned for an hour on two cores."""

from __future__ import annotations

from collections.abc import Mapping

from benchcore.planning.catalog import load_spec

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
    "kernels": ("softmax_b128", "rms_norm_b128"),
    "recompile": ("infer_base", "infer_base_bucketed"),
}
"""Of workloads in both frameworks. A CPU takes seconds per step of large models. So vision models
and ensemble ConvNets run with one image. Left out, as they take minutes: per-sample gradients of
texts and of `cifar_resnet`, which `seed0` measures, and gradients of ensemble ConvNets."""
_SIZE = "_medium"


def list_breadth() -> list[tuple[str, str]]:
    """Workload and case of every duel but the sentinels; a new operation is in it by itself."""
    operations = [case for case in load_spec("ops").cases if case.endswith(_SIZE)]
    listed = {**BASE_CASES, "ops": tuple(operations)}
    return [(workload, case) for workload, cases in listed.items() for case in cases]

"""Names of cases in words."""

from __future__ import annotations

from typing import get_args

import pytest

from benchcore.names import arm_label, describe_status, name_case_in_words
from benchcore.protocol import Status


@pytest.mark.parametrize(
    ("workload", "case", "use_case", "words"),
    [
        ("resnet50", "train_b32", "train", "ResNet-50, training, batch 32, fp32"),
        ("mnist_cnn", "train_b32_x2", "train", "MNIST CNN, training, batch 32, fp32, on 2 devices"),
        (
            "mnist_cnn",
            "per_sample_grad_b32_x2",
            "per_sample_grad",
            "MNIST CNN, per-sample gradients, batch 32, fp32, on 2 devices",
        ),
        ("ops", "fft_medium", "op", "Operations, batch 32, fp32, FFT, medium size"),
        ("ops", "tiny_op_fft", "op", "Operations, batch 32, fp32, tiny, FFT"),
        (
            "ensemble",
            "convnet_gradient_n8_b32",
            "gradient",
            "Ensemble, gradients, batch 32, fp32, 8 ConvNets",
        ),
        (
            "recompile",
            "infer_base_bucketed",
            "infer",
            "New shapes, inference, batch 32, fp32, medium depth, padded to powers of two",
        ),
        ("recompile", "infer_k7", "infer", "New shapes, inference, batch 32, fp32, 7 shapes"),
        ("copy", "cpu_256m", "op", "Memory copy, batch 32, fp32, sized for a CPU, 256 MiB"),
        (
            "matmul",
            "gpu_8192",
            "op",
            "Matrix product, batch 32, fp32, sized for a GPU, 8192 by 8192",
        ),
        ("convolution", "dense_3x3", "op", "Convolution, batch 32, fp32, dense 3x3"),
        ("vit_b_16", "infer_b32_112px", "infer", "ViT-B/16, inference, batch 32, fp32, 112px"),
    ],
)
def test_a_case_is_named_in_words_without_repeating_itself(
    workload: str, case: str, use_case: str, words: str
) -> None:
    row = {"workload": workload, "case_name": case, "use_case": use_case, "batch": 32}
    assert name_case_in_words(row | {"precision": "fp32_ieee"}) == words


def test_every_status_is_described_in_words() -> None:
    found = {each: describe_status(each) for each in get_args(Status)}
    assert found["oom"] == "ran out of memory" and found["crash"] == "crashed"
    assert len(set(found.values())) == len(found) and not set(found) & set(found.values())


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ("jax-jit", ""),
        ("torch-compile", "compiled"),
        ("torch-eager", "eager"),
        ("stdlib", ""),
        ("jax-jit-fully-sharded", "fully sharded"),
        ("torch-compile-fully-sharded", "compiled, fully sharded"),
        ("torch-compile-tensor", "compiled, tensor parallel"),
        ("jax-jit-no-donation", "without donation"),
        ("torch-compile-max-autotune-no-cudagraphs", "compiled, max-autotune without CUDA graphs"),
        ("torch-compile-cudnn-benchmark", "compiled, cudnn benchmark"),
        ("jax-tuned", "tuned"),
    ],
)
def test_an_arm_is_named_in_words(arm: str, words: str) -> None:
    assert arm_label(arm) == words

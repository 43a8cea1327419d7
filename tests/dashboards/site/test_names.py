"""Names of cases in words."""

from __future__ import annotations

import pytest

from dashboards.site.names import name_case_in_words


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
        ("ops", "fft_medium", "op", "Operations, batch 32, fp32, fft medium"),
        ("ops", "tiny_op_fft", "op", "Operations, batch 32, fp32, tiny fft"),
        ("vit_b_16", "infer_b32_112px", "infer", "ViT-B/16, inference, batch 32, fp32, 112px"),
    ],
)
def test_a_case_is_named_in_words_without_repeating_itself(
    workload: str, case: str, use_case: str, words: str
) -> None:
    row = {"workload": workload, "case_name": case, "use_case": use_case, "batch": 32}
    assert name_case_in_words(row | {"precision": "fp32_ieee"}) == words

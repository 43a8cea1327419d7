"""The starts of a proof with large and with small values: what limits, epsilons and rounding do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchcore.cell.proof.agreement import compare_all
from benchcore.program import Arrays
from benchcore.workloads.cifar_resnet.spec import EPSILON as CIFAR_EPSILON
from benchcore.workloads.contract import import_spec
from benchcore.workloads.mlp import spec as mlp
from benchcore.workloads.networks.transformer.widths import EPSILON as TRANSFORMER_EPSILON
from benchcore.workloads.ops.table import LAYER_NORM_EPSILON
from benchcore.workloads.proof_inputs.large_values import LARGE, enlarge, widen
from benchcore.workloads.vision.case import Case
from benchcore.workloads.vit_b_16.spec import EPSILON

_CASE = mlp.CASES["tiny_infer"]


def _compute(arrays: Arrays, limit: float) -> np.ndarray:
    """The perceptron's logits, with hidden activations of at most `limit`."""
    value = arrays.inputs["images"].astype(np.float64)
    *hidden, last = [name for name, _, _ in _CASE.layers]
    for name in hidden:
        value = value @ arrays.params[f"{name}.weight"].T + arrays.params[f"{name}.bias"]
        value = np.clip(value, 0.0, limit)
    return value @ arrays.params[f"{last}.weight"].T + arrays.params[f"{last}.bias"]


def test_an_activation_that_is_limited_at_100_shows_only_with_large_values() -> None:
    usual = mlp.make_arrays(_CASE, 3)
    large = enlarge(_CASE, usual)
    assert np.array_equal(_compute(usual, 100.0), _compute(usual, np.inf))
    limited, right = _compute(large, 100.0), _compute(large, np.inf)
    assert np.abs(limited - right).max() > 0.1 * np.abs(right).max()


def test_every_layer_but_the_last_gets_large_biases_and_the_given_arrays_stay() -> None:
    usual = mlp.make_arrays(_CASE, 3)
    kept = {name: array.copy() for name, array in usual.params.items()}
    large = enlarge(_CASE, usual)
    assert all(np.array_equal(usual.params[name], array) for name, array in kept.items())
    for name in ("fc0.bias", "fc1.bias"):
        assert np.isin(LARGE, large.params[name]).sum() >= 3, name
    assert np.array_equal(large.params["fc2.bias"], usual.params["fc2.bias"])
    assert np.isin(LARGE, large.inputs["images"]).all()


@pytest.mark.parametrize("workload", ["resnet50", "mobilenet_v3_small", "efficientnet_b0"])
def test_some_channels_of_every_batch_norm_have_a_variance_near_its_epsilon(workload: str) -> None:
    spec = import_spec(workload)
    case: Case = spec.cases["tiny_infer"]
    small = spec.shrink(case, spec.make_arrays(case, 3)).params
    variances = [array for name, array in small.items() if name.endswith("running_var")]
    assert variances
    assert all((each < 2e-5).any() and (each > 0.1).any() for each in variances)


@pytest.mark.parametrize("workload", ["text_classifier", "small_lm"])
def test_the_input_of_a_transformers_first_norm_has_a_variance_near_its_epsilon(
    workload: str,
) -> None:
    spec = import_spec(workload)
    case = spec.cases["tiny_infer"]
    usual = spec.make_arrays(case, 3)
    small, large = spec.shrink(case, usual), spec.enlarge(case, usual)
    for name in ("token_embedding.weight", "position_embedding.weight"):
        assert small.params[name].var() < TRANSFORMER_EPSILON < usual.params[name].var()
    assert np.abs(large.params["blocks.0.fc1.bias"]).max() == max(LARGE)


@pytest.mark.parametrize("workload", ["text_classifier", "small_lm", "vit_b_16"])
def test_means_before_a_transformers_norms_are_far_from_zero_but_in_training(
    workload: str,
) -> None:
    """In training such numbers would leave updates without digits."""
    spec = import_spec(workload)

    def enlarge_positions(name: str) -> np.ndarray:
        case = spec.cases[name]
        params = spec.enlarge(case, spec.make_arrays(case, 3)).params
        (positions,) = (each for key, each in params.items() if "pos" in key)
        return positions.reshape(-1, positions.shape[-1]).astype(np.float64)

    far = enlarge_positions("tiny_infer")
    assert np.abs(far.mean(axis=1) / far.std(axis=1)).min() > 500
    usual = enlarge_positions("tiny_train")
    assert np.abs(usual.mean(axis=1) / usual.std(axis=1)).max() < 1


def test_some_rows_of_an_operation_have_a_variance_near_an_epsilon() -> None:
    spec = import_spec("ops")
    case = spec.cases["tiny_op_layer_norm"]
    rows = spec.shrink(case, spec.make_arrays(case, 3)).inputs["x"]
    variances = rows.var(axis=1)
    assert (variances < 2 * LAYER_NORM_EPSILON).any()
    assert (variances > 0.5).any()


def test_some_rows_of_a_norm_alone_are_far_from_zero() -> None:
    """A variance in one pass, as the difference of two means, has no digits left there."""
    spec = import_spec("ops")

    def measure(name: str) -> np.ndarray:
        case = spec.cases[name]
        rows = spec.enlarge(case, spec.make_arrays(case, 3)).inputs["x"].astype(np.float64)
        return np.abs(rows.mean(axis=1)) / rows.std(axis=1)

    distances = measure("tiny_op_layer_norm")
    assert distances[1::2].min() > 500 > 10 > distances[::2].max()
    assert measure("tiny_op_softmax").max() < 10


def test_a_group_norm_of_cifar_resnet_has_a_variance_below_its_epsilon() -> None:
    spec = import_spec("cifar_resnet")
    for name, is_small in (("tiny_per_sample_grad", True), ("tiny_train", False)):
        case = spec.cases[name]
        kernels = spec.smooth(case, spec.make_arrays(case, 3)).params["conv1.weight"]
        assert ((kernels**2).sum(axis=(1, 2, 3)) < CIFAR_EPSILON).any() == is_small


def test_the_input_of_vits_first_norm_has_a_variance_near_its_epsilon() -> None:
    spec = import_spec("vit_b_16")
    case: Case = spec.cases["tiny_infer"]
    usual = spec.make_arrays(case, 3)
    small, large = spec.shrink(case, usual).params, spec.enlarge(case, usual).params
    assert small["encoder.pos_embedding"].var() < 10 * EPSILON
    assert np.abs(large["encoder.layers.encoder_layer_0.mlp.0.bias"]).max() == max(LARGE)


@pytest.mark.parametrize(("away", "agrees"), [(5e-3, True), (5e-2, False)])
def test_large_values_are_compared_within_wider_tolerances(
    tmp_path: Path, away: float, agrees: bool
) -> None:
    logits = np.linspace(0.0, 1.0, 10)
    for name, array in (("a", logits), ("b", logits + away), ("c", logits + 2e-6)):
        np.savez(tmp_path / f"{name}.npz", logits=array)
    a, b, c = (tmp_path / f"{name}.npz" for name in "abc")
    evidence = {"a": {"before": a, "start 0, large": a}, "b": {"before": c, "start 0, large": b}}
    (row,) = compare_all(evidence, {"logits": 1e-5})
    assert (row["agrees"], row["tolerance"]) == (agrees, 1e-2)
    for moment in ("after", "small"):
        (row,) = compare_all(
            {"a": {f"start 0, {moment}": a}, "b": {f"start 0, {moment}": b}}, {"logits": 1e-5}
        )
        assert (row["agrees"], row["tolerance"]) == (False, 1e-5)


def test_no_tolerance_becomes_narrower_or_meaningless() -> None:
    assert widen({"logits": 1e-5, "gradient": 3e-2, "update": 5e-3, "labels": 0.0}) == {
        "logits": pytest.approx(1e-2),
        "gradient": 3e-2,
        "update": 1e-2,
        "labels": 0.0,
    }

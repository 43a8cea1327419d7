"""The rule of the equivalence pass: one function, and no side much less exact than the other."""

from __future__ import annotations

import numpy as np
import pytest

from benchcore.cell.proof.case import put_test_images
from benchcore.cell.proof.float64_rule import (
    ProofRule,
    SideEvidence,
    gather,
    judge,
    measure,
    trace_drift,
)
from benchcore.program import Arrays

EXACT = np.linspace(-1.0, 1.0, 1001)
FP32 = ProofRule(precision="fp32_ieee", tolerances={})


def _side(error: float, *, exact: np.ndarray = EXACT, quantity: str = "logits") -> SideEvidence:
    """A side whose largest error is `error` of the exact values."""
    away = np.full_like(exact, error)
    return SideEvidence(found={quantity: exact + away}, exact={quantity: exact})


def _passes(a: SideEvidence, b: SideEvidence, precision: str = "fp32_ieee") -> bool:
    (row,) = judge(a, b, ProofRule(precision=precision, tolerances={}))
    return row["passed"]


def test_two_sides_with_equal_errors_pass() -> None:
    (row,) = judge(_side(5e-7), _side(1e-6), FP32)
    assert row["passed"]
    assert (row["reference_error"], row["reference_bound"]) == (0.0, 2e-8)
    assert row["a_error"] == pytest.approx(5e-7)
    assert row["a_bound"] == pytest.approx(3 * 1e-6 + 1e-6)
    assert row["b_bound"] == pytest.approx(3 * 5e-7 + 1e-6)


def test_a_different_function_fails_in_any_precision() -> None:
    other = _side(1e-7, exact=EXACT * (1 + 1e-7))  # else as exact as can be
    for precision in ("fp32_ieee", "tf32", "bf16", "bf16_autocast"):
        assert not _passes(_side(1e-7), other, precision)
    assert _passes(_side(1e-7), _side(1e-7, exact=EXACT * (1 + 1e-8)))


def test_a_float32_reference_is_refused() -> None:
    third = EXACT / 3
    rounded = SideEvidence(found={"logits": third}, exact={"logits": third.astype(np.float32)})
    assert not _passes(rounded, _side(1e-7, exact=third))


@pytest.mark.parametrize("turned", [False, True])
def test_a_side_more_than_three_times_as_wrong_as_the_other_fails(turned: bool) -> None:
    good, bad = _side(1e-6), _side(5e-6)
    assert not (_passes(bad, good) if turned else _passes(good, bad))
    assert _passes(_side(3.5e-6), good)


def test_two_sides_that_are_both_too_coarse_exceed_the_absolute_limit() -> None:
    """Both in TF32 under the label of IEEE float32."""
    assert not _passes(_side(6e-4), _side(6e-4))
    assert _passes(_side(6e-4), _side(6e-4), "tf32")
    assert not _passes(_side(0.2), _side(0.2), "bf16")


def test_a_gradient_far_from_float64_passes_if_both_sides_are() -> None:
    """ReLU kinks and small batches: float32 itself may be percents away."""
    a, b = (_side(error, quantity="gradient") for error in (0.02, 0.021))
    assert _passes(a, b)
    assert not _passes(a, _side(1e-4, quantity="gradient"))


def test_a_unit_at_its_kink_is_allowed_only_in_gradients() -> None:
    """By as much as the workload allows; forward values are not moved."""
    kinds = ("gradient", "running_var")
    rule = ProofRule(precision="fp32_ieee", tolerances=dict.fromkeys(kinds, 1e-2))
    for quantity, forgiven in zip(kinds, (True, False), strict=True):
        pair = _side(5e-3, quantity=quantity), _side(1e-6, quantity=quantity)
        assert [judge(*pair, each)[0]["passed"] for each in (FP32, rule)] == [False, forgiven]


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"logits": EXACT[:5]},
        {"logits": np.full_like(EXACT, np.nan)},
        {"logits": np.where(EXACT > 0, np.inf, EXACT)},
    ],
    ids=["missing", "another shape", "NaN", "infinite"],
)
def test_what_cannot_be_compared_fails(found: dict[str, np.ndarray]) -> None:
    broken = SideEvidence(found=found, exact={"logits": EXACT})
    assert not _passes(broken, _side(1e-7))
    assert not _passes(_side(1e-7), broken)


def test_a_reference_of_zeros_proves_nothing() -> None:
    zeros = _side(0.0, exact=np.zeros(5))
    assert not _passes(zeros, zeros)
    assert measure(np.zeros(5), np.zeros(5), "gradient") is None


def test_the_loss_is_the_first_of_the_trace_and_traces_of_all_seeds_count() -> None:
    seeds = [{"loss_trace": np.array([1.0, 0.5])}, {"loss_trace": np.array([2.0, 1.0])}]
    gathered = gather(seeds)
    assert gathered["loss"] == [1.0]
    exact = SideEvidence(found=gathered, exact=gathered)
    off = gather([seeds[0], {"loss_trace": np.array([2.0, 1.001])}])
    rows = {
        each["quantity"]: each
        for each in judge(SideEvidence(found=off, exact=gathered), exact, FP32)
    }
    assert rows["loss"]["passed"]
    assert not rows["loss_trace"]["passed"]


def _parts(errors: dict[str, float]) -> SideEvidence:
    exact = dict.fromkeys(errors, EXACT)
    found = {name: EXACT * (1 + error) for name, error in errors.items()}
    return SideEvidence(found=found, exact=exact)


def test_drift_names_the_first_layer_that_went_wrong() -> None:
    right = _parts({"layer/first": 1e-7, "layer/second": 1e-7, "layer/third": 1e-7})
    wrong = _parts({"layer/first": 1e-7, "layer/second": 1e-4, "layer/third": 1e-2})
    parts = trace_drift("logits", wrong, right, FP32)
    assert [(each["part"], each["passed"]) for each in parts] == [
        ("layer/first", True),
        ("layer/second", False),
        ("layer/third", False),
    ]


def test_an_array_with_a_true_gradient_of_zero_passes() -> None:
    """Its own relative error means nothing: it is compared with the size of the whole gradient."""
    noise = {"gradient/weight": EXACT, "gradient/idle": EXACT * 1e-16}
    right = SideEvidence(found={**noise, "gradient/idle": EXACT * 3e-8}, exact=noise)
    away = SideEvidence(found={**noise, "gradient/idle": EXACT * -2e-7}, exact=noise)
    parts = trace_drift("gradient", away, right, FP32)
    assert all(each["passed"] for each in parts)


def test_test_images_replace_only_the_first_images() -> None:
    images = np.zeros((3, 3, 8, 8), dtype=np.float32)
    photograph = np.zeros((20, 30, 3), dtype=np.uint8)
    photograph[:, 11:] = 255  # the middle 16 columns begin at 7: bright from the third of eight on
    put = put_test_images(Arrays(params={}, inputs={"images": images}), [photograph] * 2)
    found = put.inputs["images"]
    assert not found[2].any() and not images.any()
    assert found[0, 0, 0, 0] == pytest.approx(-0.485 / 0.229)
    assert found[0, 2, 7, 7] == pytest.approx((1 - 0.406) / 0.225)
    assert (found[0, 0] > 0).sum() == 6 * 8
    flat = Arrays(params={}, inputs={"images": np.zeros((3, 24), dtype=np.float32)})
    assert put_test_images(flat, [photograph]) is flat

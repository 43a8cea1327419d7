"""Equivalence: what agrees, what does not, and what proves nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchcore.cell.proof.agreement import MOVED, compare_all, find_non_finite
from benchcore.cell.proof.steps.left_behind import share_moved

LOGITS = np.linspace(-1.0, 1.0, 100, dtype=np.float32)


def _save(
    tmp_path: Path, moment: str = "start 0, before", **evidence: dict[str, np.ndarray]
) -> dict[str, dict[str, Path]]:
    paths = {name: tmp_path / f"{name}-{moment}.npz" for name in evidence}
    for name, arrays in evidence.items():
        np.savez(paths[name], **arrays)  # type: ignore[arg-type]
    return {name: {moment: path} for name, path in paths.items()}


def test_every_pair_is_compared_by_its_largest_relative_difference(tmp_path: Path) -> None:
    off = LOGITS.copy()
    off[3] += 2e-4
    paths = _save(tmp_path, a={"y": LOGITS}, b={"y": LOGITS}, c={"y": off})
    rows = compare_all(paths, {"y": 1e-5})
    assert [(row["a"], row["b"], row["agrees"]) for row in rows] == [
        ("a", "b", True),
        ("a", "c", False),
        ("b", "c", False),
    ]
    assert rows[0]["max_relative"] == 0.0
    assert rows[1]["max_relative"] == pytest.approx(2e-4, rel=1e-3)
    assert rows[1]["l2_relative"] < rows[1]["max_relative"]


def test_the_moment_of_largest_difference_decides(tmp_path: Path) -> None:
    """A step that goes wrong once it is timed, and a contender that has failed since."""
    off = LOGITS + 2e-4
    before = _save(tmp_path, a={"y": LOGITS}, b={"y": LOGITS})
    after = _save(tmp_path, "start 0, after", a={"y": LOGITS}, b={"y": off})
    both = {name: {**before[name], **after[name]} for name in before}
    assert [row["agrees"] for row in compare_all(before, {"y": 1e-5})] == [True]
    assert [row["agrees"] for row in compare_all(both, {"y": 1e-5})] == [False]
    alone = _save(tmp_path, "start 1, before", a={"y": off})
    both["a"] |= alone["a"]
    assert [row["agrees"] for row in compare_all(both, {"y": 1.0})] == [True]
    assert compare_all({"a": alone["a"], "b": before["b"]}, {"y": 1e-5}) == []


def test_a_frozen_part_of_a_parameter_shows_where_updates_are_no_evidence(tmp_path: Path) -> None:
    rounded, frozen = np.array([0.1, 0.9, 1.0]), np.array([0.3, 0.5, 1.0])
    shares = {"a": np.array([0.3, 0.9, 1.0]), "rounded": rounded, "frozen": frozen}
    before = _save(
        tmp_path, **{name: {"loss": LOGITS, MOVED: each} for name, each in shares.items()}
    )
    after = _save(tmp_path, "start 0, after", **{name: {"loss": LOGITS} for name in shares})
    both = {name: {**before[name], **after[name]} for name in before}
    rows = {(row["b"], row["quantity"]): row for row in compare_all(both, {"loss": 1e-2})}
    assert rows["rounded", MOVED]["agrees"] and not rows["frozen", MOVED]["agrees"]
    assert rows["frozen", "loss"]["agrees"]
    unmoved = _save(tmp_path, a={"loss": LOGITS, MOVED: shares["a"]}, b={"loss": LOGITS})
    assert [row["agrees"] for row in compare_all(unmoved, {"loss": 1e-2})] == [True, False]


def test_the_share_of_numbers_that_a_step_moves_is_taken_of_each_large_parameter() -> None:
    before = {"params": {"w": np.zeros(100), "few": np.zeros(3), "bias": np.zeros(64)}}
    after = {"params": {"w": np.arange(100.0) // 50, "few": np.ones(3), "bias": np.zeros(64)}}
    assert share_moved(before, after).tolist() == [0.0, 0.5, 1.0]


def test_of_a_start_with_small_variances_the_first_step_is_compared(tmp_path: Path) -> None:
    """Later steps multiply what is rounding there."""
    off = LOGITS + 2e-4
    usual = {"gradient": LOGITS, "travel": LOGITS}
    later, first = usual | {"travel": off}, usual | {"gradient": off}
    before = _save(tmp_path, a=usual, later=usual, first=usual)
    small = _save(tmp_path, "start 0, small", a=usual, later=later, first=first)
    both = {name: {**before[name], **small[name]} for name in before}
    rows = compare_all(both, dict.fromkeys(usual, 1e-5))
    assert {(row["a"], row["b"], row["quantity"]) for row in rows if not row["agrees"]} == {
        ("a", "first", "gradient"),
        ("later", "first", "gradient"),
    }
    alone = compare_all({name: small[name] for name in ("a", "later")}, dict.fromkeys(usual, 1e-5))
    assert [row["agrees"] for row in alone] == [True, False]


@pytest.mark.parametrize(
    "other",
    [
        {"other": LOGITS},
        {"y": LOGITS[:50]},
        {"y": np.zeros_like(LOGITS)},
        {"y": np.full_like(LOGITS, np.nan)},
        {"y": np.full_like(LOGITS, np.inf)},
    ],
    ids=["missing", "another shape", "all zeros", "NaN", "infinite"],
)
def test_what_cannot_be_compared_does_not_agree(
    tmp_path: Path, other: dict[str, np.ndarray]
) -> None:
    (row,) = compare_all(_save(tmp_path, a={"y": LOGITS}, b=other), {"y": 1e-5})
    assert row["agrees"] is False


def test_two_sides_that_are_all_zeros_prove_nothing(tmp_path: Path) -> None:
    zeros = {"y": np.zeros_like(LOGITS)}
    (row,) = compare_all(_save(tmp_path, a=zeros, b=zeros), {"y": 1e-5})
    assert row == {
        "a": "a",
        "b": "b",
        "quantity": "y",
        "tolerance": 1e-5,
        "max_relative": None,
        "l2_relative": None,
        "agrees": False,
    }


def test_the_first_quantity_that_is_not_finite_is_named(tmp_path: Path) -> None:
    bad = LOGITS.copy()
    bad[0] = np.nan
    paths = _save(tmp_path, good={"y": LOGITS}, bad={"x": LOGITS, "y": bad})
    (good,), (bad_path,) = paths["good"].values(), paths["bad"].values()
    assert find_non_finite(good) is None
    assert find_non_finite(bad_path) == "y"

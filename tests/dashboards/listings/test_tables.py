"""A pair as a row of text: what does not count has no number, and a slow side is named."""

from __future__ import annotations

from typing import Any

from sample_frames import sample_frames

from dashboards.listings.tables import describe_ratio_row, list_environments, list_failed_checks


def _pair(**changes: Any) -> dict[str, Any]:
    ratios = sample_frames(num_nights=1).ratios
    return {**ratios[ratios["counts"].eq(True)].to_dict("records")[0], **changes}


def test_a_pair_that_does_not_count_has_no_number_in_tables() -> None:
    row = describe_ratio_row(_pair(counts=False))
    assert (row["speedup"], row["counts"]) == ("void", "does not count")
    assert "x" in describe_ratio_row(_pair(counts=True))["speedup"]


def test_a_convolution_at_a_multiple_of_the_others_time_is_called_slow() -> None:
    slow = {"verdict": "different", "log_ratio": 1.2, "low": 1.1, "high": 1.3}
    assert " slow" in describe_ratio_row(_pair(workload="convolution", **slow))["direction"]
    assert " slow" not in describe_ratio_row(_pair(workload="resnet50", **slow))["direction"]


def test_environments_are_listed_in_the_order_of_their_versions() -> None:
    rows = [
        {
            "framework": "jax",
            "version": version,
            "python_version": "3.13.0",
            "build": "cpu",
            "environment_key": key,
        }
        for version, key in (("0.10.0", "4d"), ("0.9.1", "62"), ("0.9.0.1", "86"), ("0.10.0", "4d"))
    ]
    assert [each["version"] for each in list_environments(rows)] == ["0.9.0.1", "0.9.1", "0.10.0"]


def test_what_several_pairs_failed_for_one_reason_is_listed_once() -> None:
    first = sample_frames(num_nights=1).failed_checks.to_dict("records")[0]
    marks = [
        {**first, **change}
        for change in (
            {"contender": "torch-compile", "other": "jax-jit"},
            {"contender": "torch-eager", "other": "jax-jit"},
            {"contender": "torch-eager", "other": "jax-jit", "reason": "differs by 1.0"},
            {"contender": "torch-eager", "other": None},
            {"contender": "torch-eager", "other": None, "severity": "warning"},
            {"contender": "torch-eager", "other": None, "duel_run": "another"},
        )
    ]
    rows = list_failed_checks(marks, {"jax-jit": "JAX 0.12.0"})
    assert [(each["contender"], each["effect"]) for each in rows] == [
        (
            "torch-compile against JAX 0.12.0; torch-eager against JAX 0.12.0; torch-eager",
            "does not count",
        ),
        ("torch-eager against JAX 0.12.0", "does not count"),
        ("torch-eager", "warning"),
        ("torch-eager", "does not count"),
    ]
    assert len({each["reason"] for each in rows}) == 2

"""`deadheat certificates` on nights in which two versions of a framework met."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from result_documents import (
    JAX,
    OLD_JAX,
    OLD_TORCH,
    TORCH,
    Racer,
    make_document,
    make_history,
    plant_amounts,
)
from stored_histories import open_history
from typer.testing import CliRunner

from benchcore.state import open_state
from flows.cli.main import app


def _print(root: Path, *arguments: str) -> str:
    command = ["certificates", "--state", str(root), *arguments]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def _wobble(racer: Racer, by: float) -> Racer:
    return replace(racer, start_factors=(1.0, 1 + by, 1 - by))


def test_each_release_has_its_certificate_from_all_starts_of_all_nights(tmp_path: Path) -> None:
    assert "compares two versions" in _print(tmp_path)
    state = open_state(tmp_path)
    racers = [JAX, _wobble(OLD_JAX, 0.002), TORCH, replace(OLD_TORCH, step_ns=1.2e6)]
    # A compilation each.
    nights = [make_document(racers, duel_run=f"{night:016x}") for night in range(3)]
    slow = [JAX, replace(OLD_JAX, step_ns=3e6), TORCH]
    nights.append(make_document(slow, duel_run="f" * 16))
    open_history(state, nights, wrong=[3]).dispose()  # a night that does not count
    torch, jax = json.loads(_print(tmp_path, "--metric", "median_step_ns", "--json"))
    assert (jax["certificate"], jax["num_samples"]) == ("unchanged", 9)
    assert (jax["b_version"], jax["a_version"]) == ("0.8.2", "0.9.0")
    assert (torch["certificate"], torch["change"]) == ("better", pytest.approx(0.2))
    printed = " ".join(_print(tmp_path).split())
    assert "unchanged within ±2.0 %" in printed and "0.8.2 to 0.9.0" in printed
    assert "+20.0 %" in printed


def test_every_metric_of_a_release_has_its_certificate(tmp_path: Path) -> None:
    """Compile time and memory of three nights; what was measured twice only is not shown."""
    state = open_state(tmp_path)
    nights = make_history([0.0, 0.001, -0.001], [JAX, OLD_JAX])
    plant_amounts(nights, 0, "cold_compile_s", [1.41, 1.4, 1.39])
    plant_amounts(nights, 1, "cold_compile_s", [1.0, 1.01, 0.99])
    plant_amounts(nights, 0, "process_peak_bytes", [1e9] * 3)
    plant_amounts(nights, 1, "process_peak_bytes", [1e9, 1.001e9, 1.001e9])
    plant_amounts(nights, 0, "allocator_peak_bytes", [2e9, 2e9, 0.0])
    plant_amounts(nights, 1, "allocator_peak_bytes", [1e9] * 3)
    open_history(state, nights).dispose()
    rows = {row["metric"]: row for row in json.loads(_print(tmp_path, "--json"))}
    assert rows["median_step_ns"]["certificate"] == "unchanged"
    compiled = rows["cold_compile_s"]
    assert (compiled["certificate"], compiled["num_samples"]) == ("worse", 3)
    assert compiled["change"] == pytest.approx(1 / 1.4 - 1, rel=0.01)
    assert compiled["low"] < compiled["change"] < compiled["high"] < 0
    assert rows["process_peak_bytes"]["certificate"] == "unchanged"
    twice = rows["allocator_peak_bytes"]
    assert (twice["certificate"], twice["num_samples"]) == ("not shown", 2)
    assert "at least 3" in twice["reason"]


def test_one_change_among_many_tests_of_a_release_must_be_surer(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    nights = make_history([0.0, 0.001, -0.001], [JAX, OLD_JAX])
    plant_amounts(nights, 0, "cold_compile_s", [1.41, 1.3, 1.2])
    plant_amounts(nights, 1, "cold_compile_s", [1.0, 1.01, 0.99])
    open_history(state, nights).dispose()
    (alone,) = json.loads(_print(tmp_path, "--metric", "cold_compile_s", "--json"))
    (among,) = (
        row for row in json.loads(_print(tmp_path, "--json")) if row["metric"] == "cold_compile_s"
    )
    assert (alone["certificate"], among["certificate"]) == ("worse", "not shown")
    assert "among the" in among["reason"]

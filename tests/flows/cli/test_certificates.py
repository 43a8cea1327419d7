"""`deadheat certificates` on nights in which two versions of a framework met."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kept_histories import open_history
from result_documents import JAX, OLD_JAX, OLD_TORCH, TORCH, Racer, make_document
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


def test_each_release_has_its_certificate_from_all_starts_of_all_nights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    assert "compares two versions" in _print(tmp_path)
    state = open_state(tmp_path)
    racers = [JAX, _wobble(OLD_JAX, 0.002), TORCH, replace(OLD_TORCH, step_ns=1.2e6)]
    # A compilation each.
    nights = [make_document(racers, duel_run=f"{night:016x}") for night in range(3)]
    slow = [JAX, replace(OLD_JAX, step_ns=3e6), TORCH]
    nights.append(make_document(slow, duel_run="f" * 16))
    open_history(state, nights, wrong=[3]).dispose()  # a night that does not count
    torch, jax = json.loads(_print(tmp_path, "--json"))
    assert (jax["certificate"], jax["num_starts"]) == ("unchanged", 9)
    assert (jax["b_version"], jax["a_version"]) == ("0.8.2", "0.9.0")
    assert (torch["certificate"], torch["change"]) == ("changed", pytest.approx(0.2))
    printed = " ".join(_print(tmp_path).split())
    assert "unchanged within ±2.0%" in printed and "0.8.2 to 0.9.0" in printed
    assert "+20.0%" in printed

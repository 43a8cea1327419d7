"""Releases measured in campaigns of their own form a history by version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from result_documents import JAX, make_document
from stored_histories import store_history

from benchcore.experiments.alerting.alerts import describe_release
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.reports.release_trends import list_trends

STEP = "median_step_ns"


def _measure(
    engine: Engine, state: State, times: Sequence[float], first: int = 0, method: int = 1
) -> None:
    """A campaign for each release: its version against the one before it, three compilations."""
    for number in range(1, len(times)):
        racers = [
            replace(
                JAX,
                name=f"jax-{version}",
                version=f"0.{9 + version}.0",  # 0.10.0 is newer than 0.9.0
                role="pinned",
                step_ns=1e6 * times[version - first],
                start_factors=(1.0, 1.001, 0.999) if version == first + number else (),
            )
            for version in (first + number, first + number - 1)
        ]
        name = f"release-{first + number}"
        document = make_document(racers, duel_run=f"{first + number:016x}", campaign=name)
        document["method"] = method
        store_history(engine, state, [document])


def test_releases_that_cost_one_percent_each_are_seen_together(
    engine: Engine, state: State
) -> None:
    _measure(engine, state, [1.0, 1.01, 1.0201, 1.030301])
    [found] = list_trends(engine, "jax", "0.12.0", [STEP])
    assert (found["since"], found["num_releases"]) == ("0.9.0", 3)
    assert found["factors"]["ratio"] == pytest.approx(1.0303, rel=0.002)
    assert 1.01 < found["factors"]["low"] < found["factors"]["high"] < 1.05
    text = describe_release("jax", "0.12.0", "0.11.0", [], [found])
    assert " Over 3 releases since 0.9.0: mlp tiny (JAX) is 3 % slower (2." in text
    assert list_trends(engine, "torch", "0.12.0", [STEP]) == []


def test_a_missing_release_ends_the_history(engine: Engine, state: State) -> None:
    _measure(engine, state, [1.0, 1.05])
    _measure(engine, state, [1.05, 1.05, 1.05], first=2)
    assert list_trends(engine, "jax", "0.13.0", [STEP]) == []
    assert list_trends(engine, "jax", "0.10.0", [STEP]) == []  # one release is no trend


def test_releases_that_another_method_measured_are_no_part_of_the_history(
    engine: Engine, state: State
) -> None:
    _measure(engine, state, [1.0, 1.01, 1.0201])
    _measure(engine, state, [1.0201, 1.030301, 1.04060401], first=2, method=2)
    [found] = list_trends(engine, "jax", "0.13.0", [STEP])
    assert (found["since"], found["num_releases"]) == ("0.11.0", 2)

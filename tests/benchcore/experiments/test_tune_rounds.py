"""When the campaign of an earlier search is resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchcore.environments.version_requests import Release, Request
from benchcore.errors import UserError
from benchcore.experiments import tune_rounds
from benchcore.experiments.tune_rounds import (
    TuneRequest,
    TuneRounds,
    begin_rounds,
    name_outcome,
)
from benchcore.planning.matrix import Plan
from benchcore.planning.requests import CaseFilter, Placement
from benchcore.running.plans import save_campaign
from benchcore.state import State, open_state

REQUEST = TuneRequest(workload="mlp", case_filter=CaseFilter(case="tiny_train"))


class _MeasuresNothing:
    def measure(self, plan: Plan, title: str) -> None:
        raise AssertionError(f"{title} was measured")

    def report(self, text: str) -> None:
        """Nobody reads it."""


def _begin(state: State, patch: pytest.MonkeyPatch, **changes: Any) -> TuneRounds:
    """The rounds of a search, with these changes of what its versions resolve to."""

    def resolve(request: Request, *_given: object, **_named: object) -> Release:
        found = Release(
            framework=request.framework,
            version={"jax": "0.9.1"}.get(request.framework, "2.10.0"),
            role=request.selector,
            python=Path("/usr/bin/python3"),
            python_version="3.13.1",
        )
        return replace(found, **changes)

    patch.setattr(tune_rounds, "resolve", resolve)
    patch.setattr(tune_rounds, "find_interpreters", list)
    placement = Placement(campaign="a-search")
    return begin_rounds(REQUEST, "tiny_train", state, _MeasuresNothing(), placement)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """With the plan of a search that began."""
    state = open_state(tmp_path)
    save_campaign(_begin(state, monkeypatch).plan, state)
    return state


@pytest.mark.parametrize(
    "changes",
    [{"notes": ("jax 0.9.2 needs Python 3.14",)}, {"python": Path("/opt/python3.13/bin/python3")}],
)
def test_a_search_is_resumed_although_a_hint_or_the_path_of_python_changed(
    state: State, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    before = _begin(state, monkeypatch).plan
    resumed = _begin(state, monkeypatch, **changes).plan
    assert resumed.duels == before.duels
    assert list(resumed.releases) == list(before.releases)
    ((name, value),) = changes.items()
    assert {getattr(each, name) for each in resumed.releases.values()} == {value}


@pytest.mark.parametrize(
    "changes", [{"version": "0.9.2"}, {"python_version": "3.12.0"}, {"extras": ("opacus",)}]
)
def test_a_search_of_something_else_is_not_resumed(
    state: State, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match="wanted a search of the same versions in campaign"):
        _begin(state, monkeypatch, **changes)


@pytest.mark.parametrize(
    ("low", "high", "least_gain", "outcome"),
    [
        (1.02, 1.05, 0.01, "faster"),
        (1.005, 1.05, 0.01, "a gain of 1.0 % is not shown"),
        (0.99, 1.05, 0.0, "no gain"),
        (0.78, 0.85, 0.01, "slower"),
    ],
)
def test_the_outcome_of_a_change_follows_from_its_interval(
    low: float, high: float, least_gain: float, outcome: str
) -> None:
    assert name_outcome(low, high, least_gain) == outcome

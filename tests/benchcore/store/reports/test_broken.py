"""What ran and then failed in two nights is news of the second one, and of no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from result_documents import JAX, NEW_JAX, TORCH, Racer, make_history
from stored_histories import open_history, store_history

from benchcore.experiments.alerting.alerts import describe_broken
from benchcore.state import State
from benchcore.store.reports.broken import list_broken

_CRASHED = replace(NEW_JAX, status="crash")


def _list_by_night(
    state: State, racers: Sequence[Racer], prefix: str = "nightly-laptop"
) -> list[list[dict[str, Any]]]:
    """What each night reports, when all nights are stored. A night has one of the `racers`."""
    documents = []
    for night, racer in enumerate(racers):
        document = make_history([0.1] * (night + 1), (racer, TORCH))[-1]
        documents.append({**document, "campaign": f"{prefix}-2026-01-{night + 1:02}"})
    engine = open_history(state, documents[:1])
    for document in documents[1:]:
        store_history(engine, state, [document])
    found = [list_broken(engine, each["campaign"]) for each in documents]
    engine.dispose()
    return found


def test_what_fails_in_two_nights_is_reported_in_the_second_one(state: State) -> None:
    nights = _list_by_night(state, [JAX, JAX, _CRASHED, _CRASHED, _CRASHED])
    assert [len(each) for each in nights] == [0, 0, 0, 1, 0]
    assert describe_broken(nights[3]) == (
        "Failed in two nights: mlp tiny: JAX 0.9.1 crashed in build: it broke. "
        "Before 2026-01-03 it ran, with 0.9.0."
    )


@pytest.mark.parametrize(
    "racers",
    [
        [JAX, _CRASHED, JAX, _CRASHED],
        [_CRASHED, _CRASHED, _CRASHED],
        [JAX, replace(JAX, status="workaround"), replace(JAX, status="workaround")],
        [JAX, replace(_CRASHED, role="pinned"), replace(_CRASHED, role="pinned")],
    ],
    ids=["one night", "it never ran", "a workaround", "a pinned version"],
)
def test_no_alarm_without_something_that_broke(state: State, racers: list[Racer]) -> None:
    assert not any(_list_by_night(state, racers))


def test_runs_that_a_person_started_are_no_nights(state: State) -> None:
    assert not any(_list_by_night(state, [JAX, _CRASHED, _CRASHED], "compare"))


def test_two_profiles_of_one_night_are_one_night(state: State) -> None:
    first, second, third = make_history([0.1] * 3, (JAX, TORCH), later=(_CRASHED, TORCH), since=1)
    first["campaign"], second["campaign"] = "nightly-laptop-2026-01-01", "nightly-laptop-2026-01-02"
    third["campaign"] = "nightly-history-2026-01-02"
    engine = open_history(state, [first])
    for document in (second, third):
        store_history(engine, state, [document])
    assert not any(list_broken(engine, each["campaign"]) for each in (second, third))
    engine.dispose()


def test_five_are_named_and_the_others_counted(state: State) -> None:
    (row,) = _list_by_night(state, [JAX, _CRASHED, _CRASHED])[-1]
    text = describe_broken([{**row, "ran": "0.9.1"}] * 7)
    assert text.endswith("it broke. Before 2026-01-02 it ran. And 2 more.")

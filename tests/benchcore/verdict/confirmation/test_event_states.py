from __future__ import annotations

from typing import get_args

import pytest

from benchcore.errors import UserError
from benchcore.verdict.confirmation.event_states import (
    BASELINES,
    NEXT,
    EventState,
    check_move,
    first_state,
)


def test_every_state_is_reached_and_can_be_left() -> None:
    states = set(get_args(EventState))
    assert set(NEXT) == states
    reached = {"untriaged"}
    for _ in states:
        reached |= {new for old in reached for new in NEXT[old]}  # type: ignore[index]
    assert reached == states
    assert all(NEXT.values())
    assert set(BASELINES) < states


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("untriaged", "fixed", "'untriaged' can go to, got 'fixed'; choose one of investigating"),
        ("accepted", "untriaged", "choose one of investigating, fixed with --as"),
        ("accepted", "accepted", "got 'accepted'"),
        ("untriaged", "nonsense", "no state 'nonsense'; choose one of untriaged, investigating"),
        ("untriaged", "x" * 500, "no state 'xxxx"),
    ],
)
def test_an_impossible_transition_is_refused(old: EventState, new: str, words: str) -> None:
    with pytest.raises(UserError) as refused:
        check_move(old, new)
    assert words in str(refused.value) and len(str(refused.value)) < 400


def test_infrastructure_is_set_without_triage() -> None:
    assert first_state("infrastructure") == "infrastructure"
    assert first_state("a") == first_state("unknown") == "untriaged"

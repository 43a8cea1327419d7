"""Campaigns that go through the suites together are marked as each of them is alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from result_documents import JAX, TORCH, make_document, spool_document

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import list_campaigns
from benchcore.store.frames.duels import failed_check_frame
from benchcore.store.incoming.ingest import ingest_spool
from data_checks.check import check_campaign

SUITES = {"contenders", "continuity", "freshness"}
_SPRING = datetime(2026, 3, 1, 3, tzinfo=UTC)
_NUM_EARLIER = 6


def _spool_night(state: State, campaign: str, day: int, step_ns: float) -> None:
    """A night so many days after the first, in two duels ten minutes apart."""
    for number in range(2):
        began = _SPRING + timedelta(days=day, minutes=10 * number)
        ended = began + timedelta(minutes=10)
        duel_run = f"{2 * day + number:016x}"
        sides = (replace(JAX, step_ns=step_ns), TORCH)
        document = make_document(sides, duel_run=duel_run, campaign=campaign)
        document["allocation"].update(started_at=began.isoformat(), ended_at=ended.isoformat())
        for contender in document["contenders"]:
            for each in contender["starts"]:
                each["started_at"] = began.isoformat()
        spool_document(state.spool, document)


@pytest.fixture
def nights(state: State, engine: Engine) -> Iterator[Engine]:
    """A past, a night that is far outside of it, and one so late that it has no past."""
    for day in range(_NUM_EARLIER):
        _spool_night(state, f"night-{day}", day, 1e6)
    _spool_night(state, "slow", 10, 1.6e6)
    _spool_night(state, "late", 66, 1.6e6)
    assert ingest_spool(engine, state).rejected == ()
    yield engine


def _list_marks(engine: Engine) -> list[tuple[Any, ...]]:
    rows = failed_check_frame(engine).drop(columns="checked_at")
    return list(rows.itertuples(index=False, name=None))


def test_campaigns_are_marked_together_as_each_alone(nights: Engine) -> None:
    names = list_campaigns(nights)
    for each in names:
        check_campaign(nights, each)
    alone = _list_marks(nights)
    assert [row[0] for row in alone] == ["slow", "slow"]
    check_campaign(nights, names)
    assert _list_marks(nights) == alone


def test_only_the_campaigns_that_are_named_are_checked_again(nights: Engine) -> None:
    check_campaign(nights, ["slow"])
    assert len(_list_marks(nights)) == 2
    check_campaign(nights, ["late", "night-0"])
    assert len(_list_marks(nights)) == 2
    check_campaign(nights, [])
    assert len(_list_marks(nights)) == 2

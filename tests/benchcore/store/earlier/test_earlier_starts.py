"""Earlier duels of the same two environments inform the variance of a later one."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta

import pytest
from result_documents import JAX, OLD_JAX, TORCH, Racer, make_document, spool_document

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import judge_campaign, replace_failed_checks
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.records import FailedCheck
from benchcore.verdict.duel.ratios import Ratio

NIGHTS = 8
_FIRST = datetime(2026, 11, 1, 3, tzinfo=UTC)


def _racer(racer: Racer, rng: random.Random, spread: float = 0.01) -> Racer:
    factors = tuple(math.exp(rng.gauss(0, spread)) for _ in range(3))
    return Racer(**{**vars(racer), "start_factors": factors})


def _spool(engine: Engine, state: State, nights: int = NIGHTS, **last: object) -> list[str]:
    """Nights of two environments; `last` replaces what the last one's document has."""
    rng, names = random.Random(4), [f"night-{number}" for number in range(nights)]
    for number, name in enumerate(names):
        racers = (_racer(JAX, rng), _racer(TORCH, rng))
        document = make_document(racers, duel_run=f"{number:016x}", campaign=name)
        begun = _FIRST + timedelta(days=number)
        document["allocation"]["started_at"] = begun.isoformat()
        document["allocation"]["ended_at"] = (begun + timedelta(minutes=3)).isoformat()
        if number == nights - 1:
            document |= last
        spool_document(state.spool, document)
    assert not ingest_spool(engine, state).rejected
    for name in names:
        replace_failed_checks(engine, name, [])
    return names


def _width(ratio: Ratio) -> float:
    assert ratio.low is not None and ratio.high is not None
    return ratio.high - ratio.low


def test_the_sixth_night_and_later_ones_know_the_spread(engine: Engine, state: State) -> None:
    found = [judge_campaign(engine, name)[0] for name in _spool(engine, state)]
    assert not any("earlier duels" in each.reason for each in found[:5])
    assert found[5].reason.endswith(", with the spread of 5 earlier duels")
    widths = [_width(each) for each in found]
    assert max(widths[5:]) < max(widths[:5])


def test_all_nights_at_once_are_judged_like_one_by_one(engine: Engine, state: State) -> None:
    names = _spool(engine, state)
    at_once = judge_campaign(engine, *names)
    assert [judge_campaign(engine, name)[0] for name in names] == at_once
    assert judge_campaign(engine, names[-1]) == at_once[-1:]


@pytest.mark.parametrize("other", ["method", "environment", "node's device"])
def test_what_differs_is_judged_alone(engine: Engine, state: State, other: str) -> None:
    rng = random.Random(4)
    changed = make_document((_racer(JAX, rng), _racer(TORCH, rng)))
    last: dict[str, object] = {}
    if other == "method":
        last = {"method": 2}
    elif other == "environment":
        old = make_document((_racer(OLD_JAX, rng), _racer(TORCH, rng)))
        last = {name: old[name] for name in ("contenders", "equivalence")}
    else:
        allocation = changed["allocation"]
        begun = _FIRST + timedelta(days=NIGHTS - 1)
        allocation["started_at"] = begun.isoformat()
        allocation["ended_at"] = (begun + timedelta(minutes=3)).isoformat()
        allocation["device"] |= {"fingerprint": "f" * 16}
        last = {"allocation": allocation}
    names = _spool(engine, state, **last)
    for name in names[:-1]:
        judge_campaign(engine, name)
    (found,) = judge_campaign(engine, names[-1])
    assert "earlier duels" not in found.reason


def test_pairs_that_do_not_count_inform_nothing(engine: Engine, state: State) -> None:
    names = _spool(engine, state)
    reasons = {"suite": "equivalence", "expectation": "outputs agree", "reason": "other inputs"}
    for number, name in enumerate(names[:-1]):
        run = f"{number:016x}"
        failed = FailedCheck(duel_run=run, contender=None, other=None, **reasons)
        replace_failed_checks(engine, name, [failed])
    found = judge_campaign(engine, *names)
    assert [each.counts for each in found] == [False] * (NIGHTS - 1) + [True]
    assert "earlier duels" not in found[-1].reason

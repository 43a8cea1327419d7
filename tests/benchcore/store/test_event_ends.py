"""Events that close themselves, stay open or grow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from result_documents import JAX, NEW_JAX, TORCH, Racer, make_history
from sqlalchemy.orm import Session
from stored_histories import MOVED, NAMES, make_finding, store_history

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.history.events import (
    list_events,
    list_unsent,
    move_event,
    record_sent,
    show_event,
    store_finding,
)
from benchcore.store.history.suspicions import (
    choose_suspicions,
    list_suspicions,
    refresh_suspicions,
)
from benchcore.store.models import EventRow, SuspicionRow
from benchcore.store.reports.changes import list_changes
from benchcore.verdict.confirmation.machine_check import KNOWN_LEVEL
from dashboards.website.campaign.news import find_size


@pytest.mark.parametrize(
    ("culprit", "later", "expected"),
    [
        ("a", JAX, "fixed"),
        ("a", NEW_JAX, "untriaged"),  # the ratio is back by other means
        ("b", JAX, "untriaged"),
        ("infrastructure", NEW_JAX, "fixed"),
    ],
)
def test_an_event_whose_change_is_gone_closes_itself(
    state: State, engine: Engine, culprit: str, later: Racer, expected: str
) -> None:
    """A release of one night, which the next one replaced."""
    logs = np.random.default_rng(4).normal(0.2, 0.005, 20)
    logs[10] += 0.06
    documents = make_history(logs.tolist(), later=[NEW_JAX, TORCH], since=10)
    documents[11:] = make_history(logs.tolist(), [later, TORCH])[11:]
    store_history(engine, state, documents[:11])
    refresh_suspicions(engine)
    store_finding(engine, 1, make_finding(culprit=culprit), names=NAMES)
    store_history(engine, state, documents)
    refresh_suspicions(engine)
    (event,) = list_events(engine)
    assert event["state"] == expected
    if expected == "fixed":
        last = show_event(engine, 1)["history"][-1]
        assert (last["who"], last["new"]) == ("deadheat", "fixed")
        assert last["note"] == "the nights since 2026-01-12 are back at the old level"


@pytest.fixture
def recovered(state: State, engine: Engine) -> Engine:
    """An event of a release of one night, which the next one replaced; its alert is unsent. The
    nights since are stored, but not looked at yet."""
    logs = np.random.default_rng(4).normal(0.2, 0.005, 20)
    logs[10] += 0.06
    documents = make_history(logs.tolist(), later=[NEW_JAX, TORCH], since=10)
    documents[11:] = make_history(logs.tolist())[11:]
    store_history(engine, state, documents[:11])
    refresh_suspicions(engine)
    details = {"cause": "JAX 0.9.1 against 0.9.0", "size": 0.06, "again": "deadheat compare"}
    alert = {"text": "JAX is slower.", "details": details, "group": "JAX"}
    store_finding(engine, 1, make_finding(), names=NAMES, alert=alert)
    store_history(engine, state, documents)
    return engine


def test_an_event_that_closes_itself_leaves_an_alert_once_that_of_its_shift_is_queued(
    recovered: Engine,
) -> None:
    refresh_suspicions(recovered)
    assert [each["state"] for each in list_events(recovered)] == ["untriaged"]
    record_sent(recovered, 1)
    for _ in range(2):
        refresh_suspicions(recovered)
        ((event, alert),) = list_unsent(recovered).items()
        assert (event, alert["text"], alert["group"]) == (1, "JAX is slower.", "JAX")
        assert alert["note"] == "the nights since 2026-01-12 are back at the old level"
        details = alert["details"]
        assert (details["state"], details["cause"]) == ("fixed", "JAX 0.9.1 against 0.9.0")
        assert details["size"] == 0.06 and "again" not in details
    record_sent(recovered, 1)
    refresh_suspicions(recovered)
    assert list_unsent(recovered) == {}


def test_what_a_person_opened_again_does_not_close_itself_again(recovered: Engine) -> None:
    record_sent(recovered, 1)
    refresh_suspicions(recovered)
    record_sent(recovered, 1)
    move_event(recovered, 1, "investigating", who="ada")
    refresh_suspicions(recovered)
    assert [each["state"] for each in list_events(recovered)] == ["investigating"]
    assert list_unsent(recovered) == {}


@pytest.mark.parametrize(("culprit", "num_events"), [("infrastructure", 1), ("a", 2)])
def test_an_event_of_the_machine_grows_with_a_second_step_of_it(
    state: State, engine: Engine, culprit: str, num_events: int
) -> None:
    """A step of another cause is an event of its own."""
    nights = np.arange(40)
    logs = np.random.default_rng(4).normal(0.2, 0.005, 40) + 0.05 * (nights >= 20)
    logs += 0.05 * (nights >= 24)
    documents = make_history(logs.tolist())
    store_history(engine, state, documents[:23])
    refresh_suspicions(engine)
    alert: dict[str, Any] = {"text": "It is slower.", "details": {"suspicion": 1, "size": 0.05}}
    store_finding(engine, 1, make_finding(culprit="infrastructure"), names=NAMES, alert=alert)
    record_sent(engine, 1)
    store_history(engine, state, documents)
    refresh_suspicions(engine)
    for each in choose_suspicions(engine):
        alert["details"] = {"suspicion": each, "size": 0.1}
        store_finding(engine, each, make_finding(culprit=culprit), names=NAMES, alert=alert)
        refresh_suspicions(engine)
    assert choose_suspicions(engine) == []
    first = list_events(engine)[-1]
    assert len(list_events(engine)) == num_events
    if num_events == 1:
        assert (first["suspicion"], first["since"]) == (2, "2026-01-25")
        assert list_unsent(engine)[1]["details"]["state"] == "grown"
        last = show_event(engine, 1)["history"][-1]
        assert (last["old"], last["new"], last["who"]) == (*2 * ("infrastructure",), "deadheat")
        assert last["note"].startswith("it grew: the level shifted by +")


def test_two_changes_of_one_night_that_cancel_are_not_gone(state: State, engine: Engine) -> None:
    """A driver and a release: the ratio is as before, and both events hold."""
    logs = np.random.default_rng(4).normal(0.2, 0.005, 20)
    logs[10] += 0.06
    documents = make_history(logs.tolist(), later=[NEW_JAX, TORCH], since=10)
    store_history(engine, state, documents[:11])
    refresh_suspicions(engine)
    with Session(engine) as session, session.begin():
        first = session.get_one(SuspicionRow, 1)
        names = [each.key for each in SuspicionRow.__table__.columns if each.key != "id"]
        session.add(SuspicionRow(**{name: getattr(first, name) for name in names}))
    for number, culprit in ((1, "a"), (2, "infrastructure")):
        store_finding(engine, number, make_finding(culprit=culprit), names=NAMES)
    store_history(engine, state, documents)
    refresh_suspicions(engine)
    assert {each["state"] for each in list_events(engine)} == {"untriaged", "infrastructure"}


def test_an_event_closes_itself_also_if_its_date_was_measured_again(
    state: State, engine: Engine
) -> None:
    logs = np.random.default_rng(4).normal(0.2, 0.005, 20)
    logs[10] += 0.06
    documents = make_history(logs.tolist(), later=[NEW_JAX, TORCH], since=10)
    again = make_history(logs.tolist(), [NEW_JAX, TORCH], campaign="again")[10]
    again["duel_run"] = "f" * 16
    for name in ("started_at", "ended_at"):
        again["allocation"][name] = again["allocation"][name].replace("T03", "T09")
    documents[11:] = make_history(logs.tolist())[11:]
    store_history(engine, state, documents[:11])
    refresh_suspicions(engine)
    store_finding(engine, 1, make_finding(), names=NAMES)
    store_history(engine, state, [again])
    store_history(engine, state, documents)
    refresh_suspicions(engine)
    assert [each["state"] for each in list_events(engine)] == ["fixed"]


def test_an_event_is_not_closed_by_a_change_whose_cause_is_unknown(
    state: State, engine: Engine
) -> None:
    """JAX 0.9.2 is as slow as 0.9.1; what brought the ratio back is not known."""
    nights = np.arange(48)
    logs = np.random.default_rng(4).normal(0.2, 0.005, 48) + 0.06 * ((nights >= 20) & (nights < 33))
    documents = make_history(logs.tolist(), later=[NEW_JAX, TORCH], since=20)
    newer = replace(JAX, name="jax-0.9.2", version="0.9.2")
    documents[30:] = make_history(logs.tolist(), [newer, TORCH])[30:]
    store_history(engine, state, documents[:26])
    refresh_suspicions(engine)
    store_finding(engine, 1, make_finding(), names=NAMES)
    store_history(engine, state, documents)
    refresh_suspicions(engine)
    assert choose_suspicions(engine) == [2]
    store_finding(engine, 2, make_finding("unknown", "unknown"), names=NAMES)
    refresh_suspicions(engine)
    assert [each["state"] for each in list_suspicions(engine)] == ["confirmed", "unknown"]
    assert [each["state"] for each in list_events(engine)] == ["untriaged"]


def test_growth_whose_alert_was_not_sent_is_part_of_that_of_the_next(
    state: State, engine: Engine
) -> None:
    """As an event's first alert it would count as sent."""
    store_history(engine, state, make_history([0.2 + 0.06 * (night >= 10) for night in range(16)]))
    refresh_suspicions(engine)
    with Session(engine) as session, session.begin():
        first = session.get_one(SuspicionRow, 1)
        names = [each.key for each in SuspicionRow.__table__.columns if each.key != "id"]
        row = {name: getattr(first, name) for name in names}
        session.add_all([SuspicionRow(**row | {"after_run": f"{each:016x}"}) for each in (14, 15)])
    for each in (1, 2, 3):
        alert = {"text": "It is slower.", "details": {"suspicion": each, "size": 0.05}}
        found = make_finding(culprit="infrastructure")
        store_finding(engine, each, found, names=NAMES, alert=alert)
        if each == 1:
            record_sent(engine, 1)
    assert list_unsent(engine)[1]["details"] == {"suspicion": 3, "size": 0.05, "state": "grown"}


def test_growth_of_an_event_that_was_opened_again_is_growth(state: State, engine: Engine) -> None:
    """The message that it was fixed was not sent yet."""
    store_history(engine, state, make_history([0.2 + 0.06 * (night >= 10) for night in range(16)]))
    refresh_suspicions(engine)
    with Session(engine) as session, session.begin():
        first = session.get_one(SuspicionRow, 1)
        names = [each.key for each in SuspicionRow.__table__.columns if each.key != "id"]
        row = {name: getattr(first, name) for name in names}
        session.add(SuspicionRow(**row | {"after_run": f"{14:016x}"}))
    alert = {"text": "It is slower.", "details": {"suspicion": 1, "size": 0.05}}
    found = make_finding(culprit="infrastructure")
    store_finding(engine, 1, found, names=NAMES, alert=alert)
    with Session(engine) as session, session.begin():
        fixed = {**alert, "details": {**alert["details"], "state": "fixed"}}
        session.get_one(EventRow, 1).unsent_alert = fixed
    store_finding(engine, 2, found, names=NAMES, alert=alert)
    assert list_unsent(engine)[1]["details"]["state"] == "grown"


def test_what_a_control_found_has_the_size_of_the_nights_and_closes_itself(
    state: State, engine: Engine
) -> None:
    """Fresh starts show nothing, and the nights' level is not judged."""
    logs = np.random.default_rng(4).normal(0.2, 0.005, 30)
    logs[10:15] += 0.06
    documents = make_history(logs.tolist())
    store_history(engine, state, documents[:14])
    refresh_suspicions(engine)
    same = replace(MOVED, verdict="same", log_ratio=0.002, low=-0.003, high=0.007)
    found = replace(make_finding(culprit="infrastructure"), change=same)
    store_finding(engine, 1, found, names=NAMES)
    (event,) = list_events(engine)
    assert event["ratio"] == pytest.approx(np.exp(0.06), abs=0.01)
    (change,) = [each for each in list_changes(engine) if each["event"]]
    assert find_size(change)[0] == event["ratio"]
    store_history(engine, state, documents)
    refresh_suspicions(engine)
    assert 1 not in choose_suspicions(engine)
    for each in choose_suspicions(engine):
        store_finding(engine, each, make_finding("refuted", "neither"), names=NAMES)
    refresh_suspicions(engine)
    assert [each["state"] for each in list_events(engine)] == ["fixed"]


@pytest.mark.parametrize(
    ("reason", "later"), [(f"{KNOWN_LEVEL} for 20 nights", ["drift"]), ("as before", [])]
)
def test_after_a_return_of_the_machine_drift_is_suspected(
    state: State, engine: Engine, reason: str, later: list[str]
) -> None:
    nights = np.arange(90)
    logs = np.random.default_rng(4).normal(0.2, 0.003, 90) + 0.06 * ((nights >= 20) & (nights < 35))
    documents = make_history((logs - np.interp(nights, [45, 89], [0.0, 0.05])).tolist())
    same = replace(MOVED, verdict="same", log_ratio=0.0, low=-0.01, high=0.01)
    gone = replace(make_finding("refuted", "neither"), change=same)
    back = replace(gone, machine_level=replace(same, reason=reason))
    for until, found in ((24, make_finding(culprit="infrastructure")), (40, back)):
        store_history(engine, state, documents[:until])
        refresh_suspicions(engine)
        (each,) = choose_suspicions(engine)
        store_finding(engine, each, found, names=NAMES)
    store_history(engine, state, documents)
    refresh_suspicions(engine)
    assert [each["trigger"] for each in list_suspicions(engine) if each["id"] > 2] == later


def test_the_return_of_a_few_nights_is_answered_once_its_event_closes_itself(
    state: State, engine: Engine
) -> None:
    """So few nights off show too little to test the return by."""
    nights = np.arange(40)
    logs = np.random.default_rng(4).normal(0.2, 0.005, 40) + 0.06 * ((nights >= 20) & (nights < 25))
    documents = make_history(logs.tolist())
    same = replace(MOVED, verdict="same", log_ratio=0.0, low=-0.01, high=0.01)
    unknown = replace(make_finding("unknown", "unknown"), change=same)
    machine = make_finding(culprit="infrastructure")
    for until, found in ((23, machine), (28, unknown), (40, unknown)):
        store_history(engine, state, documents[:until])
        refresh_suspicions(engine)
        for each in choose_suspicions(engine):
            store_finding(engine, each, found, names=NAMES)
    refresh_suspicions(engine)
    assert [each["state"] for each in list_events(engine)] == ["fixed"]
    _, back = sorted(list_suspicions(engine), key=lambda each: each["id"])
    assert (back["state"], back["since"]) == ("refuted", "2026-01-26")
    assert back["finding"]["reason"] == f"the ratio is {KNOWN_LEVEL}, before event 1"
    refresh_suspicions(engine)
    assert choose_suspicions(engine) == []

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from result_documents import NEW_JAX, TORCH, make_history
from sent_statements import record_statements
from sqlalchemy.orm import Session
from stored_histories import MOVED, NAMES, make_finding, store_history

from benchcore.errors import UserError
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import (
    judge_campaign,
    list_open_environments,
    replace_failed_checks,
)
from benchcore.store.history.events import (
    annotate_event,
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
    read_suspicion,
    refresh_suspicions,
)
from benchcore.store.models import DuelRun, SuspicionRow
from benchcore.store.records import FailedCheck
from benchcore.store.reports.changes import list_changes
from benchcore.verdict.confirmation.machine_check import KNOWN_LEVEL
from dashboards.website.campaign.news import find_size
from dashboards.website.events import events_page, open_events


@pytest.fixture
def shifted(state: State, engine: Engine) -> Engine:
    """16 nights, at a new level since the eleventh, when a version came."""
    return _shift(engine, state)


@pytest.fixture
def each_shifted(state: State, each_engine: Engine) -> Engine:
    """As `shifted`, on both engines."""
    return _shift(each_engine, state)


def _shift(engine: Engine, state: State) -> Engine:
    logs = np.random.default_rng(4).normal(0.2, 0.005, 16) + 0.06 * (np.arange(16) >= 10)
    store_history(engine, state, make_history(logs.tolist(), later=[NEW_JAX, TORCH], since=10))
    refresh_suspicions(engine)
    return engine


def test_a_suspicion_names_both_sides_before_and_after_it(shifted: Engine) -> None:
    (each,) = choose_suspicions(shifted)
    subject = read_suspicion(shifted, each)
    assert (subject.a_old.version, subject.a_new.version) == ("0.9.0", "0.9.1")
    assert subject.b_old == subject.b_new
    assert (subject.levels.a, subject.levels.b, subject.device) == ("jax", "torch", "cpu")
    assert subject.levels.before == pytest.approx(0.2, abs=0.01)
    assert subject.levels.after == pytest.approx(0.26, abs=0.01)


def test_environments_of_an_undecided_suspicion_are_needed_and_of_a_decided_one_not(
    each_shifted: Engine,
) -> None:
    subject = read_suspicion(each_shifted, 1)
    compared = {subject.a_old.environment_key, subject.a_new.environment_key}
    assert compared < list_open_environments(each_shifted)
    with Session(each_shifted) as session, session.begin():
        session.get_one(SuspicionRow, 1).state = "confirmed"
    assert list_open_environments(each_shifted) == set()


def test_environments_of_an_event_are_needed_until_it_is_closed(each_shifted: Engine) -> None:
    subject = read_suspicion(each_shifted, 1)
    compared = {subject.a_old.environment_key, subject.a_new.environment_key}
    store_finding(each_shifted, 1, make_finding())
    (event,) = list_events(each_shifted)
    for state in ("investigating", "infrastructure"):
        assert compared < list_open_environments(each_shifted)
        move_event(each_shifted, event["id"], state, who="ada")
    assert compared < list_open_environments(each_shifted)
    move_event(each_shifted, event["id"], "accepted", who="ada")
    assert list_open_environments(each_shifted) == set()


def test_the_most_promising_suspicions_get_the_time_of_a_night_first(shifted: Engine) -> None:
    """Moves of 6 % after a shift, of 3 % after a version that came, and of 9 % by a drift; each
    drift before was refuted, and each version confirmed."""
    with Session(shifted) as session, session.begin():
        first = session.get_one(SuspicionRow, 1)
        kept = {
            column.key: getattr(first, column.key)
            for column in SuspicionRow.__table__.columns
            if column.key != "id"
        }
        more = [("version", 1.03, "open"), ("drift", 0.91, "open")]
        more += [("version", 1.1, "confirmed"), ("drift", 0.9, "refuted")] * 4
        for trigger, ratio, verdict in more:
            row = {"trigger": trigger, "ratio": ratio, "state": verdict}
            session.add(SuspicionRow(**{**kept, **row}))
    assert choose_suspicions(shifted) == [1, 2, 3]
    with Session(shifted) as session, session.begin():
        session.get_one(SuspicionRow, 2).ratio = 1.05
    assert choose_suspicions(shifted) == [2, 1, 3]
    with Session(shifted) as session, session.begin():  # its starts take six times as long
        slow = session.get_one(DuelRun, session.get_one(SuspicionRow, 1).before_run)
        last = slow.ended_at - slow.started_at
        slow.ended_at = slow.started_at + 6 * max(last, timedelta(minutes=5))
        session.get_one(SuspicionRow, 2).after_run = slow.id
    assert choose_suspicions(shifted) == [1, 3, 2]


def test_a_confirmed_shift_becomes_one_event_and_is_no_longer_suspected(shifted: Engine) -> None:
    for _ in range(2):
        store_finding(shifted, 1, make_finding(), names=NAMES)
    refresh_suspicions(shifted)
    assert choose_suspicions(shifted) == []
    (event,) = list_events(shifted)
    assert (event["state"], event["culprit"], event["owner"]) == ("untriaged", "jax", None)
    assert event["ratio"] == pytest.approx(np.exp(0.06))
    (opened,) = show_event(shifted, event["id"])["history"]
    assert (opened["old"], opened["new"], opened["who"]) == (None, "untriaged", "deadheat")


def test_a_shift_whose_nights_went_the_other_way_at_first_is_one_event(shifted: Engine) -> None:
    """Few nights of a new environment opened it; fresh starts showed which way it went."""
    with Session(shifted) as session, session.begin():
        row = session.get_one(SuspicionRow, 1)
        row.trigger, row.ratio = "version", 0.985
    store_finding(shifted, 1, make_finding(), names=NAMES)
    refresh_suspicions(shifted)
    assert choose_suspicions(shifted) == []


def test_an_alert_stays_unsent_until_it_is_received(shifted: Engine) -> None:
    alert = {"text": "caused by jax", "details": {"suspicion": 1}}
    store_finding(shifted, 1, make_finding(), names=NAMES, alert=alert)
    store_finding(shifted, 1, make_finding(), names=NAMES, alert={"text": "again"})
    assert list_unsent(shifted) == {1: alert}
    record_sent(shifted, 1)
    assert list_unsent(shifted) == {}


@pytest.mark.parametrize("verdict", ["refuted", "unknown", "more"])
def test_an_unconfirmed_suspicion_is_no_event(shifted: Engine, verdict: str) -> None:
    store_finding(shifted, 1, make_finding(verdict), names=NAMES, alert={"text": "what?"})
    assert (list_events(shifted), list_unsent(shifted)) == ([], {})
    state = {"more": "open"}.get(verdict, verdict)
    assert [each["state"] for each in list_suspicions(shifted)] == [state]


def test_nights_decide_how_long_a_change_has_lasted_whenever_they_are_ingested(
    state: State, engine: Engine
) -> None:
    """The nights are older than the test. An unknown change of three nights needs one more."""
    logs = np.random.default_rng(4).normal(0.2, 0.005, 18) + 0.06 * (np.arange(18) >= 10)
    documents = make_history(logs.tolist())
    store_history(engine, state, documents[:14])
    refresh_suspicions(engine)
    store_finding(engine, 1, make_finding("unknown"), names=NAMES)
    for nights, asked in ((14, []), (15, [1])):
        store_history(engine, state, documents[:nights])
        refresh_suspicions(engine)
        assert choose_suspicions(engine) == asked
    assert read_suspicion(engine, 1).levels.since == pytest.approx(logs[10:15])


def test_triage_is_recorded_and_invalid_input_changes_nothing(shifted: Engine) -> None:
    store_finding(shifted, 1, make_finding(), names=NAMES)
    annotate_event(shifted, 1, who="ann", note="looks real", owner="bob")
    with pytest.raises(UserError, match="can go to, got 'fixed'"):
        move_event(shifted, 1, "fixed", who="ann")
    move_event(shifted, 1, "accepted", who="bob", note="by design")
    shown = show_event(shifted, 1)
    assert (shown["state"], shown["owner"], shown["is_baseline"]) == ("accepted", "bob", True)
    history = [(each["who"], each["new"], each["note"]) for each in shown["history"]]
    assert history[1:] == [
        ("ann", "untriaged", "owner: bob; looks real"),
        ("bob", "accepted", "by design"),
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"who": " "}, "wanted a name of 1 to 100 printable characters"),
        ({"who": "a\x1b[2J"}, "wanted a name"),
        ({"who": "a" * 101}, "wanted a name"),
        ({"who": "ann", "note": "x" * 10_001}, "wanted a note"),
    ],
)
def test_input_of_the_triage_is_validated(
    shifted: Engine, given: dict[str, str], words: str
) -> None:
    store_finding(shifted, 1, make_finding(), names=NAMES)
    with pytest.raises(UserError, match=words):
        move_event(shifted, 1, "accepted", **given)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no event 7; there are 1"):
        move_event(shifted, 7, "accepted", who="ann")
    with pytest.raises(UserError, match="a note or an owner, got neither"):
        annotate_event(shifted, 1, who="ann")
    assert show_event(shifted, 1)["state"] == "untriaged"


def test_infrastructure_is_reported_without_a_framework(shifted: Engine) -> None:
    store_finding(shifted, 1, make_finding(culprit="infrastructure"), names=NAMES)
    assert [each["state"] for each in list_events(shifted)] == ["infrastructure"]


def test_the_size_of_what_the_machine_moved_is_that_of_the_nights(shifted: Engine) -> None:
    """Fresh starts of both environments show nothing then."""
    found = replace(
        make_finding(culprit="infrastructure"),
        change=replace(MOVED, verdict="same", log_ratio=0.002, low=-0.003, high=0.007),
        machine_level=MOVED,
    )
    store_finding(shifted, 1, found, names=NAMES)
    (event,) = list_events(shifted)
    assert (event["ratio"], event["low"]) == pytest.approx((np.exp(0.06), np.exp(0.05)))
    (change,) = [each for each in list_changes(shifted) if each["event"]]
    assert find_size(change)[0] == event["ratio"]


def test_tonight_has_a_row_for_a_cause_and_shows_what_the_culprit_did(shifted: Engine) -> None:
    """A JAX that takes 6 % longer is worse, whichever way the ratio moved."""
    with Session(shifted) as session, session.begin():
        first = session.get_one(SuspicionRow, 1)
        names = [each.key for each in SuspicionRow.__table__.columns if each.key != "id"]
        row = {name: getattr(first, name) for name in names} | {"state": "open"}
        session.add_all([SuspicionRow(**row | {"ratio": each}) for each in (1.02, 1.1, 0.95)])
    alert = {"text": "JAX is slower.", "details": {}, "group": "JAX 0.9.1 against 0.9.0"}
    store_finding(shifted, 1, make_finding(), names=NAMES, alert=alert)
    store_finding(shifted, 2, make_finding(), names=NAMES, alert=alert)
    store_finding(shifted, 3, make_finding(culprit="infrastructure"), names=NAMES)
    changes, now = list_changes(shifted), datetime(2026, 1, 1, tzinfo=UTC)
    ((section,),) = ([each] for each in open_events(changes, now))
    table, tail = section["blocks"]
    rows = [(each["what"]["text"], each["what"].get("note")) for each in table["rows"]]
    assert rows == [("event 3", None), ("event 1", "and 1 more"), ("suspicion 4", None)]
    shown = [(each["size"]["text"], each["age"]["text"]) for each in table["rows"]]
    assert shown == [("ratio +6 %", "0 d"), ("1.06x, worse", "0 d"), ("ratio \u22125.0 %", "0 d")]
    assert "more" not in json.dumps(tail)
    (listed, *_) = [each for each in events_page(changes, now)["blocks"] if each.get("rows")]
    assert [each["what"]["text"] for each in listed["rows"]] == ["event 3", "event 1", "event 2"]


def test_conditions_are_read_only_of_the_nights_around_events(state: State, engine: Engine) -> None:
    """Pages show no others, and a database has hundreds of suspicions."""
    logs = np.random.default_rng(4).normal(0.2, 0.005, 16) + 0.06 * (np.arange(16) >= 10)
    documents = make_history(logs.tolist(), later=[NEW_JAX, TORCH], since=10)
    for night, document in enumerate(documents):
        document["allocation"]["device"]["driver"] = "570.1" if night < 10 else "580.2"
    store_history(engine, state, documents)
    refresh_suspicions(engine)
    sent = record_statements(engine, lambda: list_changes(engine))
    assert not any("effective" in text for text, _ in sent)
    (suspicion,) = list_changes(engine)
    assert (suspicion["event"], suspicion["conditions"]) == (None, [])
    store_finding(engine, 1, make_finding(), names=NAMES)
    (event,) = list_changes(engine)
    assert [str(each) for each in event["conditions"]] == ["driver 570.1 to 580.2"]
    assert event["versions"] == suspicion["versions"]
    assert event["versions"] == {"before": ("0.9.0", "2.10.0"), "after": ("0.9.1", "2.10.0")}


def test_a_suspicion_has_the_versions_of_its_own_arms(shifted: Engine) -> None:
    with Session(shifted) as session, session.begin():
        first = session.get_one(SuspicionRow, 1)
        names = [each.key for each in SuspicionRow.__table__.columns if each.key != "id"]
        row = {name: getattr(first, name) for name in names}
        session.add(SuspicionRow(**{**row, "a_arm": "jax-eager"}))
    own, other = list_changes(shifted)
    assert own["versions"]["after"][0] == "0.9.1"
    assert other["versions"] == {"before": ("", ""), "after": ("", "")}


def test_an_event_names_what_its_series_did_since(shifted: Engine) -> None:
    """A machine that is as before is no event of its own."""
    store_finding(shifted, 1, make_finding(culprit="infrastructure"), names=NAMES)
    same = replace(MOVED, verdict="same", log_ratio=None, low=None, high=None)
    known = f"{KNOWN_LEVEL} for 40 nights"
    with Session(shifted) as session, session.begin():
        first = session.get_one(SuspicionRow, 1)
        names = [each.key for each in SuspicionRow.__table__.columns if each.key != "id"]
        kept = {name: getattr(first, name) for name in names} | {"state": "open", "finding": None}
        for days, ratio in ((4, 0.94), (2, 0.97), (-1, 0.9)):
            row = {"since": first.since + timedelta(days=days), "ratio": ratio}
            session.add(SuspicionRow(**{**kept, **row}))
    for number, reason in ((2, known), (3, "as it was before"), (4, known)):
        level = replace(same, reason=reason)
        found = replace(make_finding("refuted", "neither"), change=same, machine_level=level)
        store_finding(shifted, number, found, names=NAMES)
    page = json.dumps(events_page(list_changes(shifted), datetime(2026, 3, 1, tzinfo=UTC)))
    assert page.count("Later in this series") == 1
    assert "2026-01-15: \\u22126.0 %, suspicion 2, at a level where it already was for 40" in page


def test_unknown_or_answered_suspicions_are_refused(shifted: Engine) -> None:
    with pytest.raises(UserError, match="no suspicion 9; there are 1"):
        choose_suspicions(shifted, [9])
    store_finding(shifted, 1, make_finding("refuted"), names=NAMES)
    with pytest.raises(UserError, match="open or unknown, got 1, which is refuted"):
        choose_suspicions(shifted, [1])


def test_a_suspicion_from_nights_that_no_longer_count_is_not_measured(shifted: Engine) -> None:
    gone = FailedCheck(
        duel_run=list_suspicions(shifted)[0]["before_run"],
        contender=None,
        other=None,
        suite="s",
        expectation="e",
        reason="wrong",
    )
    replace_failed_checks(shifted, "history", [gone])
    judge_campaign(shifted, "history")
    with pytest.raises(UserError, match="no longer count"):
        read_suspicion(shifted, 1)

"""A copy of a machine's year has rows of every table, which refer to each other as its own do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date

import pytest
import whole_year
from copied_years import MOST, copy_night, copy_year
from one_duel import RESULTS
from postgres_server import make_database
from result_documents import make_history
from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session
from stored_histories import FOUND, add_suspicion, store_history

from benchcore.state import State
from benchcore.store.copies.transfer import find_damage
from benchcore.store.database import begin_writing, open_database
from benchcore.store.history.events import list_events, move_event, store_finding
from benchcore.store.history.suspicions import list_suspicions
from benchcore.store.models import Base, DuelRun, Proof, SuspicionRow
from benchcore.verdict.history.series import STEP_TIME

LAST = date(2026, 11, 20)


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(
    request: pytest.FixtureRequest, state: State, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """A machine with rows of every table: three nights (one failed a check), proofs, locks,
    and an event of the last two that somebody answered."""
    url = state.database_url
    if request.param == "postgresql":
        url = make_database(request.getfixturevalue("postgres_server"), request.node.name)
    opened = open_database(url)
    nights = make_history([0.1, 0.2, 0.3])
    for number, document in enumerate(nights, start=1):
        document["duel_run"] = str(number) * 16
    nights[2]["campaign"] = "last"
    store_history(opened, state, nights[:2], wrong=[1])
    store_history(opened, state, nights[2:])
    key = nights[0]["allocation"]["device"]["fingerprint"]
    add_suspicion(opened, nights[1]["duel_run"], device_fingerprint=key, metric=STEP_TIME)
    with begin_writing(opened) as session:
        session.get_one(SuspicionRow, 1).after_run = nights[2]["duel_run"]
    store_finding(opened, 1, FOUND)
    monkeypatch.setattr(whole_year, "write_findings", lambda engine, last: None)
    whole_year.complete_year(opened, state, LAST)
    (event,) = list_events(opened)
    move_event(opened, event["id"], "investigating", who="ada")
    yield opened
    opened.dispose()


def _count(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return {
            each.name: connection.scalar(select(func.count()).select_from(each)) or 0
            for each in Base.metadata.sorted_tables
        }


def test_copies_have_rows_of_every_table_and_refer_to_their_own(engine: Engine) -> None:
    one = _count(engine)
    assert [name for name, rows in one.items() if not rows] == []
    with Session(engine) as session:
        machine = session.scalars(select(DuelRun.device_fingerprint)).first()
    assert machine is not None
    for number, machines in ((0, 2), (1, 2), (2, 2), (MOST - 1, MOST)):
        assert copy_year(engine, machine, number, machines) == one["duel_run"]
    of_machines = {"proof": 4, "environment_lock": 1}  # three machines more, the same packages
    assert _count(engine) == {name: rows * of_machines.get(name, 5) for name, rows in one.items()}
    assert find_damage(engine) == []
    with Session(engine) as session:
        suspicions = session.scalars(select(SuspicionRow).order_by(SuspicionRow.id)).all()
        proven = set(session.scalars(select(Proof.device_fingerprint)))
        runs = {each.id: each for each in session.scalars(select(DuelRun))}
    assert len({each.after_run for each in suspicions}) == 5
    for each in suspicions:
        assert each.device_fingerprint == runs[each.after_run].device_fingerprint
        assert each.device_fingerprint in proven
    events = list_events(engine)
    assert {each["suspicion"] for each in events} == {
        each["id"] for each in list_suspicions(engine)
    }
    assert len({each["id"] for each in events}) == 5


def test_a_night_alone_takes_no_suspicion_of_other_nights_along(engine: Engine) -> None:
    one = _count(engine)
    copy_night(engine, "history")
    copied = {name: rows - one[name] for name, rows in _count(engine).items()}
    assert (copied["duel_run"], copied["failed_check"]) == (2, 1)
    assert [copied[each] for each in ("suspicion", "event", "event_change", "proof")] == [0] * 4
    assert find_damage(engine) == []


def test_the_stored_round_trip_had_rows_in_every_table() -> None:
    (stored,) = [json.loads(each.read_text()) for each in RESULTS.glob("store-sqlite-*.json")]
    rows = stored["round_trip"]["rows"]
    assert rows.keys() == {each.name for each in Base.metadata.sorted_tables}
    assert all(rows.values()) and rows["contender_run"] >= 100_000
    assert [name for name in stored["round_trip"]["parts"] if name.startswith("compare")] == [
        "compare with PostgreSQL",
        "compare with the new SQLite",
    ]

"""The benchmark of the store reports a row at each doubling of the database."""

from __future__ import annotations

import pytest
import round_trip
import store
from sqlalchemy import text

from benchcore.state import State
from benchcore.store.copies.transfer import find_damage
from benchcore.store.database import open_database


def test_a_row_at_each_doubling(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "NIGHTS_AT_ONCE", 1)
    monkeypatch.setattr(store, "FIRST_ROW", 25)
    monkeypatch.setattr(store, "REPEATS", 1)
    engine = open_database(state.database_url, made_up=True)
    rows = list(store.measure(state, engine, 30))
    counts = [row["documents"] for row in rows]
    assert counts == sorted(set(counts)) and counts[0] >= 25 and 30 <= counts[-1] < 55
    plans = store.explain_queries(state, engine, store.list_campaigns(engine)[-1])
    assert plans.keys() == rows[0]["queries_s"].keys()
    assert all(plans.values())
    moved = round_trip.go_round(engine, state.root / "round-trip")
    assert moved["rows"]["contender_run"] == rows[-1]["contender_runs"]
    assert len(moved["parts"]) == 6
    assert not list((state.root / "round-trip").glob("tables"))
    for row in rows:
        assert row["contender_runs"] > 2 * row["documents"]
        assert row["ingest_ms"] > 0 and len(row["queries_s"]) >= 7
    engine.dispose()


def test_copies_of_a_year_are_as_if_they_were_ingested(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "DAYS", 2)
    monkeypatch.setattr(store, "MACHINES", 2)
    monkeypatch.setattr(store, "NIGHTS_AT_ONCE", 2)
    monkeypatch.setattr(store, "FIRST_ROW", 200)
    monkeypatch.setattr(store, "SAMPLE", 5)
    monkeypatch.setattr(store, "REPEATS", 1)
    engine = open_database(state.database_url, made_up=True)
    (row,) = store.measure(state, engine, 0, fill_to=600)
    assert row["contender_runs"] >= 600 and find_damage(engine) == []
    query = """SELECT count(*), sum(num_parts), count(DISTINCT campaign), min(started_at)
        FROM duel_run GROUP BY device_fingerprint, substr(started_at, 1, 4)"""
    with engine.connect() as connection:
        found = connection.execute(text(query)).all()
        ratios = "SELECT count(*) FROM ratio WHERE verdict = 'different'"
        of_first = connection.scalar(
            text(
                f"{ratios} AND duel_run IN (SELECT id FROM duel_run WHERE device_fingerprint = :a)"
            ),
            {"a": store._name_machine(0)},
        )
        assert of_first and connection.scalar(text(ratios)) > 3 * of_first
    assert len({each[:3] for each in found}) == 1, "each machine's year has as many rows"
    assert {each[3][:4] for each in found} >= {"2025", "2026"}, "earlier years come after it"
    engine.dispose()

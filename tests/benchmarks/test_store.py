"""The benchmark of the store reports a row at each doubling of the database."""

from __future__ import annotations

import pytest
import store

from benchcore.state import State
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
    copied = store.copy(engine, f"sqlite:///{state.root / 'copy.db'}")
    assert copied["rows"]["contender_run"] == rows[-1]["contender_runs"]
    for row in rows:
        assert row["contender_runs"] > 2 * row["documents"]
        assert row["ingest_ms"] > 0 and len(row["queries_s"]) >= 7
    engine.dispose()

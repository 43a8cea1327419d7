from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from result_documents import NEW_JAX, TORCH, make_history
from stored_histories import store_history

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.history.series import read_series
from benchcore.store.history.suspicions import list_suspicions, refresh_suspicions


def test_nights_around_midnight_are_those_that_their_campaigns_are_named_after(
    state: State, engine: Engine
) -> None:
    """A duel that runs just before midnight in one night and just after it in the next is missing
    in no night, and a change is dated as its page is."""
    logs = np.random.default_rng(4).normal(0.2, 0.005, 24) + 0.06 * (np.arange(24) >= 16)
    documents = make_history(logs.tolist(), later=[NEW_JAX, TORCH], since=16)
    for number, document in enumerate(documents):
        night = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
        begun = night + timedelta(hours=24, minutes=2 if number % 3 == 1 else -3)
        document["campaign"] = f"nightly-laptop-{night:%Y-%m-%d}"
        document["allocation"]["started_at"] = begun.isoformat()
        document["allocation"]["ended_at"] = (begun + timedelta(minutes=5)).isoformat()
        store_history(engine, state, [document])
    (series,) = read_series(engine)
    assert [night.duel_run for night in series.nights] == [f"{each:016x}" for each in range(24)]
    assert np.diff(series.numbers).tolist() == [1] * 23
    refresh_suspicions(engine)
    (found,) = list_suspicions(engine)
    assert (found["since"], found["since_run"]) == ("2026-01-17", f"{16:016x}")

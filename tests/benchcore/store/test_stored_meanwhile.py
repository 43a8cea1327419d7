"""Pages are read while another process ingests: what came between two queries is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from result_documents import CAMPAIGN, make_document
from sqlalchemy import Engine, event
from stored_histories import open_history

from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.raw_times import read_raw_times
from benchcore.store.history.conditions import read_conditions
from benchcore.store.incoming.ingest import insert_documents


@pytest.mark.parametrize(
    ("read", "second"),
    [
        (lambda engine: read_raw_times(engine, CAMPAIGN), "FROM start_run"),
        (read_conditions, "FROM contender_run"),
    ],
    ids=["raw times", "conditions"],
)
def test_a_duel_run_that_was_stored_between_two_queries_is_left_out(
    read: Callable[[Engine], Any], second: str, state: State
) -> None:
    engine = open_history(state, [make_document()])
    before = read(engine)
    late = [make_document(duel_run=f"{7:016x}")]

    @event.listens_for(engine, "before_cursor_execute")
    def store(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if late and second in statement:
            insert_documents(open_database(state.database_url), [late.pop()])

    assert read(engine) == before
    assert not late
    assert len(read(engine)) == len(before) + 1

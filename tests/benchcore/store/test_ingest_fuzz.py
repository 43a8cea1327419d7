from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from result_documents import CAMPAIGN, DUEL_RUN, make_document, spool_document

from benchcore.state import State, open_state
from benchcore.store.database import Engine, begin_writing, open_database
from benchcore.store.duels import judge_campaign
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import equivalence_frame
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.models import DuelRun

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.sampled_from([2**63, -1, 0, 1.0, "", "\x00", "\ud800", "2026-02-30T00:00:00+00:00"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


PLACES = [each for each in places(make_document(starts=1, rounds=1)) if each]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, State]]:
    state = open_state(tmp_path_factory.mktemp("fuzz") / "state")
    engine = open_database(f"sqlite:///{state.root / 'deadheat.db'}")
    yield engine, state
    engine.dispose()


@settings(max_examples=150, deadline=None)
@given(place=st.sampled_from(PLACES), value=VALUES)
@example(place=("contenders", 0, "version"), value="x")
@example(place=("contenders", 0, "starts", 0, "index"), value=1.0)
@example(place=("contenders", 0, "starts"), value=[])
@example(place=("duel", "batch"), value=1.3e120)
@example(place=("duel", "sizes"), value={"": {"\x00": "\ud800"}})
def test_a_corrupted_document_is_stored_or_rejected_and_never_stops_the_rest(
    place: tuple[Any, ...], value: object, opened: tuple[Engine, State]
) -> None:
    engine, state = opened
    document: Any = make_document(starts=1, rounds=1)
    inside = document
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    path = spool_document(state.spool, make_document())
    path.write_text(json.dumps(document))
    report = ingest_spool(engine, state)
    assert len(report.ingested) + len(report.rejected) == 1
    if report.ingested:
        assert len(contender_frame(engine, CAMPAIGN)) == len(document["contenders"])
        assert len(equivalence_frame(engine, CAMPAIGN)) == len(document["equivalence"])
        judge_campaign(engine, CAMPAIGN)
        _forget(engine, path)


def _forget(engine: Engine, path: Path) -> None:
    path.unlink()
    with begin_writing(engine) as session:
        session.delete(session.get_one(DuelRun, DUEL_RUN))

"""The database is made again from documents, table by table as it was, on both engines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run_here
from proof_documents import make_proof, store_proof
from result_documents import NEW_JAX, TORCH, make_history, spool_document
from sqlalchemy import select
from stored_histories import FOUND, store_history

from benchcore.errors import UserError
from benchcore.running.plans import load_plan_or_empty
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import judge_campaign
from benchcore.store.history.events import annotate_event, list_events, move_event, store_finding
from benchcore.store.history.history_documents import load_history, save_history
from benchcore.store.history.suspicions import choose_suspicions, refresh_suspicions
from benchcore.store.incoming.environment_locks import ingest_locks
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.models import Base
from data_checks.check import check_campaign
from data_checks.rebuild import rebuild_database

SUITES = {"contenders", "equivalence"}

_WHEN_IT_RAN = {"ingested_at", "checked_at", "judged_at"}


def _dump(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, but for the times at which a step ran."""
    dumped: dict[str, list[dict[str, Any]]] = {}
    with engine.connect() as connection:
        for table in Base.metadata.sorted_tables:
            columns = [each for each in table.columns if each.name not in _WHEN_IT_RAN]
            if table.name in ("failed_check", "proof"):
                columns = [each for each in columns if each.name != "id"]
            rows = [dict(each) for each in connection.execute(select(*columns)).mappings()]
            dumped[table.name] = sorted(rows, key=str)
    return dumped


def _triage(engine: Engine, state: State) -> int:
    """Nights of two campaigns that overlap, one of whose pairs was proven, with a shift that was
    confirmed, accepted and annotated; the checks really ran, and one fails."""
    logs = np.random.default_rng(4).normal(0.2, 0.005, 16) + 0.06 * (np.arange(16) >= 10)
    nights = make_history(logs.tolist(), later=[NEW_JAX, TORCH], since=10)
    for each in nights[3]["equivalence"]:
        each |= {"agrees": False, "max_relative": 0.5}
    store_proof(state, engine, make_proof(nights[0]))
    _measure(engine, state, nights)
    ingest_locks(engine, state, {"0" * 64: "jax==0.9.0, of an environment that is gone"})
    _measure(engine, state, _overlap(nights))
    refresh_suspicions(engine)
    suspicions = choose_suspicions(engine)
    assert suspicions
    store_finding(engine, suspicions[0], FOUND, alert={"text": "JAX is slower", "details": {}})
    (event,) = list_events(engine)
    annotate_event(engine, event["id"], who="ada", owner="ada", note="looking")
    move_event(engine, event["id"], "accepted", who="ada", note="a new baseline")
    save_history(engine, state)
    return event["id"]


def _measure(engine: Engine, state: State, documents: Sequence[dict[str, Any]]) -> None:
    """Spool, ingest, check and judge the documents of one campaign."""
    for document in documents:
        spool_document(state.spool, document)
    assert ingest_spool(engine, state).rejected == ()
    check_campaign(engine, documents[0]["campaign"])
    judge_campaign(engine, documents[0]["campaign"])


def _overlap(nights: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some of these nights again, in another campaign, an hour later."""
    again = json.loads(json.dumps(nights[5:12]).replace("T03:", "T04:"))
    for number, document in enumerate(again):
        document |= {"campaign": "another", "duel_run": f"{number + 100:016x}"}
    return again


def test_a_rebuilt_database_is_the_old_one_table_by_table(
    state: State, each_engine: Engine
) -> None:
    event = _triage(each_engine, state)
    before = _dump(each_engine)
    assert [name for name, rows in before.items() if not rows] == []
    assert any(row["severity"] == "critical" for row in before["failed_check"])
    each_engine.dispose()
    done = rebuild_database(state, lambda text: None)
    assert (done.campaigns, done.duel_runs, done.refused) == (2, 23, ())
    again = open_database(state.database_url)
    assert _dump(again) == before
    # Numbers go on after those that were loaded.
    annotate_event(again, event, who="bob", note="after the rebuild")
    again.dispose()


@pytest.mark.parametrize(
    "step", ["benchcore.store.database._create_tables_over", "data_checks.rebuild.ingest_spool"]
)
def test_an_interrupted_rebuild_keeps_the_locks_of_environments_that_are_gone(
    step: str, state: State, each_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    _triage(each_engine, state)
    before = _dump(each_engine)
    each_engine.dispose()
    with monkeypatch.context() as broken:
        broken.setattr(step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            rebuild_database(state, lambda text: None)
    again = open_database(state.database_url)
    assert _dump(again)["environment_lock"] == before["environment_lock"]
    again.dispose()
    assert rebuild_database(state, lambda text: None).refused == ()
    again = open_database(state.database_url)
    assert _dump(again) == before
    again.dispose()


def test_a_damaged_database_is_made_again_and_kept(state: State) -> None:
    spool_document(state.spool, make_history([0.1])[0])
    path = state.root / "deadheat.db"
    path.write_bytes(b"SQLite format 3\0" + b"no page" * 600)
    damaged = path.read_bytes()
    done = run_here("rebuild", "--state", str(state.root), "--json")
    assert done.returncode == 0 and "can't be read" in done.stderr, done
    printed = json.loads(done.stdout)
    assert printed["duel_runs"] == 1 and printed["kept"] == f"{path}.old"
    assert Path(printed["kept"]).read_bytes() == damaged
    again = open_database(state.database_url)
    assert len(_dump(again)["duel_run"]) == 1
    again.dispose()


def test_documents_of_another_folder_are_taken_in_without_a_plan(
    state: State, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    spool_document(results / "spool", make_history([0.1])[0])
    done = rebuild_database(state, lambda text: None, [results])
    assert done.duel_runs == 1
    assert "the plan is lost" in load_plan_or_empty(state, "history").notes[0]
    with pytest.raises(UserError, match=r"wanted a folder with documents"):
        rebuild_database(state, lambda text: None, [tmp_path / "nowhere"])


def test_history_is_loaded_into_an_empty_database_only_and_damage_is_reported(
    state: State, engine: Engine
) -> None:
    _triage(engine, state)
    assert load_history(engine, state) == []  # it has suspicions
    (path,) = [each for each in state.history.glob("*.json") if '"accepted"' in each.read_text()]
    path.write_text(path.read_text()[:100])
    engine.dispose()
    other = open_database(f"sqlite:///{state.root / 'other.db'}")
    ingest_spool(other, state)
    (refused,) = load_history(other, state)
    assert "it is damaged" in refused and list_events(other) == []
    other.dispose()


def test_suspicions_of_one_series_and_night_have_a_document_each(
    state: State, engine: Engine
) -> None:
    nights = np.arange(36)
    logs = np.random.default_rng(4).normal(0.2, 0.005, 36) + 0.06 * ((nights >= 12) & (nights < 24))
    store_history(engine, state, make_history(logs.tolist()))
    refresh_suspicions(engine)
    assert len(choose_suspicions(engine)) == 2
    before = _dump(engine)["suspicion"]
    for _ in range(2):
        save_history(engine, state)
        assert len(list(state.history.glob("*.json"))) == 2
    engine.dispose()
    other = open_database(f"sqlite:///{state.root / 'other.db'}")
    ingest_spool(other, state)
    assert load_history(other, state) == []
    assert _dump(other)["suspicion"] == before
    other.dispose()


@pytest.mark.parametrize("damage", ["list", "flipped", "folder", "surrogate"])
def test_a_damaged_file_of_the_history_is_named_and_the_others_are_loaded(
    state: State, engine: Engine, damage: str
) -> None:
    _triage(engine, state)
    (path,) = [each for each in state.history.glob("*.json") if '"accepted"' in each.read_text()]
    document = json.loads(path.read_text())
    bad = path.with_name("0-bad.json")
    if damage == "list":
        bad.write_text("[]")
    elif damage == "folder":
        bad.mkdir()
    elif damage == "surrogate":
        document["suspicion"]["reason"] = "\ud800"
        bad.write_text(json.dumps(document))
    else:  # another number in one place
        document["event"] |= {"suspicion": document["event"]["suspicion"] + 64}
        document["suspicion"]["id"] += 1
        document["event"]["id"] += 1
        document["changes"] = []
        bad.write_text(json.dumps(document))
    engine.dispose()
    other = open_database(f"sqlite:///{state.root / 'other.db'}")
    ingest_spool(other, state)
    (refused,) = load_history(other, state)
    assert "0-bad.json" in refused and len(list_events(other)) == 1
    other.dispose()

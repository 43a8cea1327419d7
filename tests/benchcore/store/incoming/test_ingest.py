from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from result_documents import (
    CAMPAIGN,
    DUEL_RUN,
    JAX,
    OLD_JAX,
    SLURM,
    TORCH,
    make_document,
    spool_document,
)
from sqlalchemy import delete, event, select

from benchcore.state import State
from benchcore.store.database import Engine, begin_writing, open_database
from benchcore.store.incoming.ingest import ingest_spool, insert_documents
from benchcore.store.models import Base, ContenderRun, Equivalence, FailedCheckRow, StartRun

IDS = ("0" * 16, "1" * 16, "2" * 16)


def all_rows(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, less the moment at which it was written."""
    with engine.connect() as connection:
        return {
            table.name: sorted(
                (
                    {key: value for key, value in row.items() if key != "ingested_at"}
                    for row in connection.execute(select(table)).mappings()
                ),
                key=str,
            )
            for table in Base.metadata.sorted_tables
        }


def spool_three(state: State) -> None:
    for each in IDS:
        spool_document(state.spool, make_document((JAX, TORCH, OLD_JAX), duel_run=each))


def test_documents_become_rows_and_stay_in_the_spool(engine: Engine, state: State) -> None:
    spool_three(state)
    report = ingest_spool(engine, state)
    assert (report.ingested, report.already, report.rejected) == (IDS, (), ())
    sizes = {name: len(rows) for name, rows in all_rows(engine).items()}
    assert sizes == {
        "duel_run": 3,
        "contender_run": 9,
        "start_run": 27,
        "equivalence": 9,
        "proof": 0,
        "failed_check": 0,
        "ratio": 0,
        **dict.fromkeys(("suspicion", "event", "event_change", "environment_lock"), 0),
    }
    assert len(list((state.spool / CAMPAIGN).iterdir())) == 3


def test_a_row_holds_the_values_of_its_document(each_engine: Engine, state: State) -> None:
    document = make_document()
    document["allocation"]["slurm"] = SLURM
    document["contenders"][1].update(
        status="crash",
        failure={
            "stage": "build",
            "start": 0,
            "reason": "it broke",
            "traceback": "Traceback: x",
            "cause": "signal",
            "xids": [{"number": 31, "pci": "0000:3b:00", "message": "Xid"}],
        },
    )
    spool_document(state.spool, document)
    ingest_spool(each_engine, state)
    rows = all_rows(each_engine)
    [duel] = rows["duel_run"]
    assert duel["started_at"].isoformat() == "2026-01-02T03:04:05+00:00"
    assert duel["ended_at"].isoformat() == "2026-01-02T03:14:05.250000+00:00"
    assert duel["device"] == document["allocation"]["device"]
    assert duel["slurm"] == SLURM
    assert (duel["case_name"], duel["sizes"]) == ("tiny", {"width": 64})
    assert (duel["num_starts"], duel["num_rounds"], duel["checked_at"]) == (3, 4, None)
    contenders = {row["name"]: row for row in rows["contender_run"]}
    crashed, fine = contenders["torch-2.10"], contenders["jax-0.9"]
    assert (fine["stage"], fine["reason"], fine["position"]) == (None, None, 0)
    assert (crashed["stage"], crashed["reason"], crashed["traceback"], crashed["position"]) == (
        "build",
        "it broke",
        "Traceback: x",
        1,
    )
    assert (fine["cause"], fine["xids"]) == (None, None)
    assert (crashed["cause"], crashed["xids"][0]["number"]) == ("signal", 31)
    start = rows["start_run"][0]
    assert start["blocks"] == document["contenders"][0]["starts"][0]["blocks"]
    assert start["median_step_ns"] == pytest.approx(1_001_500)
    assert (start["num_blocks"], start["planned_bytes"], start["energy"]) == (4, None, None)


def test_a_start_without_blocks_has_no_time(engine: Engine, state: State) -> None:
    spool_document(state.spool, make_document(rounds=1, starts=1))
    document = make_document(duel_run=IDS[0], starts=1)
    document["contenders"][0]["starts"][0]["blocks"] = []
    spool_document(state.spool, document)
    ingest_spool(engine, state)
    times = [row["median_step_ns"] for row in all_rows(engine)["start_run"]]
    assert times.count(None) == 1


def test_ingesting_twice_changes_nothing(each_engine: Engine, state: State) -> None:
    spool_three(state)
    ingest_spool(each_engine, state)
    before = all_rows(each_engine)
    report = ingest_spool(each_engine, state)
    assert (report.ingested, report.already, report.rejected) == ((), IDS, ())
    assert all_rows(each_engine) == before


def test_a_database_that_was_lost_is_rebuilt_from_the_spool(engine: Engine, state: State) -> None:
    spool_three(state)
    ingest_spool(engine, state)
    before = all_rows(engine)
    engine.dispose()
    for file in state.root.glob("deadheat.db*"):
        file.unlink()
    rebuilt = open_database(state.database_url)
    ingest_spool(rebuilt, state)
    assert all_rows(rebuilt) == before
    rebuilt.dispose()


def test_a_crash_in_the_middle_of_a_document_leaves_no_half_of_it(
    each_engine: Engine, state: State
) -> None:
    spool_three(state)

    def crash(*args: Any) -> None:
        if "INSERT INTO start_run" in args[2]:
            raise KeyboardInterrupt

    event.listen(each_engine, "before_cursor_execute", crash)
    with pytest.raises(KeyboardInterrupt):
        ingest_spool(each_engine, state)
    event.remove(each_engine, "before_cursor_execute", crash)
    assert not any(all_rows(each_engine).values())
    assert ingest_spool(each_engine, state).ingested == IDS


def test_concurrent_ingests_store_each_document_once(each_engine: Engine, state: State) -> None:
    for number in range(20):
        spool_document(state.spool, make_document(duel_run=f"{number:016x}", starts=1))
        (state.spool / CAMPAIGN / f"bad-{number}.json").write_text("{")
    together = threading.Barrier(3)

    def ingest() -> tuple[int, int]:
        own_engine = open_database(state.database_url)
        together.wait()
        report = ingest_spool(own_engine, state)
        own_engine.dispose()
        return len(report.ingested), len(report.rejected)

    with ThreadPoolExecutor(3) as pool:
        counts = [pool.submit(ingest) for _ in range(3)]
        ingested, rejected = zip(*(each.result() for each in counts), strict=True)
    assert (sum(ingested), sum(rejected)) == (20, 20)
    assert len(all_rows(each_engine)["duel_run"]) == 20
    names = sorted(each.name for each in state.rejected.iterdir())
    assert names == sorted(
        f"bad-{number}.json{end}" for number in range(20) for end in ("", ".reason.txt")
    )


@pytest.mark.parametrize("lost", [ContenderRun, StartRun, Equivalence])
def test_rows_that_a_duel_run_lacks_are_added_and_the_rest_stays(
    each_engine: Engine, state: State, lost: type[ContenderRun | StartRun | Equivalence]
) -> None:
    spool_three(state)
    ingest_spool(each_engine, state)
    mark = FailedCheckRow(
        duel_run=IDS[1],
        suite="s",
        expectation="e",
        reason="r",
        severity="critical",
        checked_at=datetime.now(UTC),
    )
    with begin_writing(each_engine) as session:
        session.add(mark)
    before = all_rows(each_engine)
    with begin_writing(each_engine) as session:
        session.execute(delete(lost).where(lost.duel_run == IDS[1]))
    report = ingest_spool(each_engine, state)
    assert (report.ingested, report.already, report.healed) == ((), IDS, (IDS[1],))
    assert all_rows(each_engine) == before
    assert ingest_spool(each_engine, state).healed == ()


def test_a_second_ingest_of_the_same_document_gives_way(
    each_engine: Engine, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spool_document(state.spool, make_document())

    def be_late(*args: Any) -> Any:
        monkeypatch.undo()
        assert ingest_spool(each_engine, state).ingested == (DUEL_RUN,)
        return json.loads(path.read_text())

    monkeypatch.setattr("benchcore.store.incoming.ingest.read_document", be_late)
    report = ingest_spool(each_engine, state)
    assert (report.ingested, report.already) == ((), (DUEL_RUN,))
    assert len(all_rows(each_engine)["duel_run"]) == 1


def test_documents_are_stored_together_and_each_alone_where_another_ingest_was_faster(
    each_engine: Engine, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = list[int]()

    def count(engine: Engine, documents: list[Any]) -> None:
        sizes.append(len(documents))
        if len(sizes) == 1:
            insert_documents(engine, documents[1:2])
        insert_documents(engine, documents)

    spool_three(state)
    monkeypatch.setattr("benchcore.store.incoming.ingest.insert_documents", count)
    report = ingest_spool(each_engine, state)
    assert (report.ingested, report.already) == ((IDS[0], IDS[2]), (IDS[1],))
    assert sizes == [3, 1, 1, 1]
    assert len(all_rows(each_engine)["duel_run"]) == 3


def test_a_transaction_holds_some_megabytes(
    engine: Engine, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool_three(state)
    commits = list[object]()

    def count(connection: object) -> None:
        commits.append(connection)

    event.listen(engine, "commit", count)
    monkeypatch.setattr("benchcore.store.incoming.ingest._BYTES_AT_ONCE", 1)
    assert ingest_spool(engine, state).ingested == IDS
    event.remove(engine, "commit", count)
    assert len(commits) == 3


def test_an_invalid_document_is_rejected_with_its_reason(engine: Engine, state: State) -> None:
    document = make_document()
    document["duel"]["batch"] = 0
    path = spool_document(state.spool, document)
    spool_document(state.spool, make_document(duel_run=IDS[1]))
    report = ingest_spool(engine, state)
    assert report.ingested == (IDS[1],)
    [rejection] = report.rejected
    assert rejection.path == state.rejected / path.name
    assert not path.exists()
    assert json.loads(rejection.path.read_text()) == document
    reason = (state.rejected / f"{path.name}.reason.txt").read_text()
    assert reason == f"{path}: {rejection.reason}\n"
    assert "$.duel.batch: wanted minimum 1, got 0" in reason


def test_a_version_takes_the_documents_of_its_schema_that_an_older_one_rejected(
    engine: Engine, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spool_document(state.spool, make_document())
    newer = spool_document(state.spool, {**make_document(duel_run=IDS[1]), "schema": 2})
    with monkeypatch.context() as older:  # one that knows schema 0 alone
        older.setattr("benchcore.store.incoming.documents._find_number", lambda name: 0)
        refused = ingest_spool(engine, state).rejected
    assert len(refused) == 2
    assert all("update Dead Heat, then run `deadheat ingest`" in each.reason for each in refused)
    assert not path.exists() and not newer.exists()
    report = ingest_spool(engine, state)
    assert (report.ingested, report.rejected) == ((DUEL_RUN,), ())
    assert path.exists()
    left = {newer.name, f"{newer.name}.reason.txt"}
    assert {each.name for each in state.rejected.iterdir()} == left
    assert ingest_spool(engine, state).rejected == ()


def test_an_earlier_rejected_file_is_never_overwritten(engine: Engine, state: State) -> None:
    for campaign in ("a", "b", "c"):
        (state.spool / campaign).mkdir()
        (state.spool / campaign / "x.json").write_text(f"{{ {campaign}")
    (state.rejected / "x.1.json").write_text("put here by hand")
    reports = ingest_spool(engine, state).rejected
    assert [each.path.name for each in reports] == ["x.json", "x.2.json", "x.3.json"]
    assert [each.path.read_text() for each in reports] == ["{ a", "{ b", "{ c"]
    assert (state.rejected / "x.1.json").read_text() == "put here by hand"
    assert ingest_spool(engine, state).rejected == ()


def test_an_id_used_by_another_campaign_is_rejected(engine: Engine, state: State) -> None:
    spool_document(state.spool, make_document(campaign="first"))
    spool_document(state.spool, make_document(campaign="second"))
    report = ingest_spool(engine, state)
    assert report.ingested == (DUEL_RUN,)
    [rejection] = report.rejected
    assert "which was ingested from campaign 'first'" in rejection.reason


def test_files_that_are_being_written_are_left_alone(engine: Engine, state: State) -> None:
    path = spool_document(state.spool, make_document())
    part = path.rename(path.with_name(path.name + ".part"))
    report = ingest_spool(engine, state)
    assert (report.ingested, report.already, report.rejected) == ((), (), ())
    assert part.exists()


def test_a_folder_in_the_place_of_a_document_is_rejected(engine: Engine, state: State) -> None:
    path = spool_document(state.spool, make_document())
    path.unlink()
    path.mkdir()
    [rejection] = ingest_spool(engine, state).rejected
    assert "wanted a result document, got a folder" in rejection.reason and not path.exists()


def test_an_empty_spool_is_no_error(engine: Engine, state: State) -> None:
    assert ingest_spool(engine, state).ingested == ()

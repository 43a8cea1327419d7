"""Packed documents come back byte for byte, and count as what they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from zipfile import ZipFile

import pytest
from result_documents import CAMPAIGN, DUEL_RUN, JAX, OLD_JAX, TORCH, make_document, spool_document
from sqlalchemy import delete
from sqlalchemy.orm import Session

from benchcore.errors import DamagedFileError
from benchcore.running.duel_process import result_path
from benchcore.state import State
from benchcore.store.database import Engine, begin_writing
from benchcore.store.duels import count_duels
from benchcore.store.incoming import ingest, packs
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.models import DuelRun, StartRun

IDS = (DUEL_RUN, "1" * 16)


@pytest.fixture
def folder(state: State) -> Path:
    for each in IDS:
        spool_document(state.spool, make_document((JAX, TORCH, OLD_JAX), duel_run=each))
    return state.spool / CAMPAIGN


def _read(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def test_a_pack_is_a_tenth_and_gives_the_documents_back(folder: Path) -> None:
    before = _read(folder)
    freed = packs.pack(folder)
    assert [*_read(folder)] == [packs.NAME] and sorted(packs.list_packed(folder)) == sorted(IDS)
    size = sum(map(len, before.values()))
    assert freed == size - (folder / packs.NAME).stat().st_size > 0.85 * size
    assert packs.pack(folder) == freed  # again, as after new documents
    packs.unpack(folder)
    assert _read(folder) == before
    packs.unpack(folder)


def test_a_pack_is_not_read_again_until_rows_are_missing(
    folder: Path, engine: Engine, state: State
) -> None:
    ingest_spool(engine, state)
    packs.pack(folder)
    report = ingest_spool(engine, state)
    assert (report.ingested, sorted(report.already)) == ((), sorted(IDS))
    assert [*_read(folder)] == [packs.NAME]
    with begin_writing(engine) as session:
        session.execute(delete(StartRun).where(StartRun.duel_run == IDS[1]))
    assert ingest_spool(engine, state).healed == (IDS[1],)
    assert packs.NAME not in _read(folder)


def _count(counted: list[list[str]], session: Session, campaigns: list[str]) -> dict[str, int]:
    counted.append(campaigns)
    return count_duels(session, campaigns)


def test_a_night_opens_no_pack_whose_duel_runs_are_there(
    folder: Path, engine: Engine, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_spool(engine, state)
    packs.pack(folder)
    with monkeypatch.context() as patch:
        patch.setattr(packs, "list_packed", lambda _: pytest.fail("opened"))
        counted = list[list[str]]()
        patch.setattr(ingest, "count_duels", lambda session, names: _count(counted, session, names))
        report = ingest_spool(engine, state, only_new=True)
    assert (report.ingested, report.already, report.healed) == ((), (), ())
    assert counted == [[CAMPAIGN]], "no other campaign's duel runs"
    with begin_writing(engine) as session:
        session.execute(delete(DuelRun).where(DuelRun.id == IDS[1]))
    assert ingest_spool(engine, state, only_new=True).ingested == (IDS[1],)


def test_a_pack_names_how_many_documents_it_holds(folder: Path) -> None:
    assert packs.count_packed(folder) is None
    packs.pack(folder)
    assert packs.count_packed(folder) == len(IDS)
    path = folder / packs.NAME
    path.write_bytes(path.read_bytes()[:-1])
    assert packs.count_packed(folder) is None
    path.write_bytes(b"")
    assert packs.count_packed(folder) is None


def test_a_new_database_takes_in_what_is_packed(folder: Path, engine: Engine, state: State) -> None:
    packs.pack(folder)
    assert ingest_spool(engine, state, only_new=True).ingested == tuple(sorted(IDS))


def test_a_packed_duel_is_measured(folder: Path, state: State) -> None:
    packs.pack(folder)
    assert result_path(state, CAMPAIGN, DUEL_RUN).exists()


def test_an_interrupted_pack_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _read(folder)

    def break_off(*args: object, missing_ok: bool = False) -> None:
        raise RuntimeError("the power went")

    with monkeypatch.context() as patch:
        patch.setattr("zipfile.ZipFile.read", break_off)
        with pytest.raises(RuntimeError, match="the power went"):
            packs.pack(folder)
    assert _read(folder) == before
    monkeypatch.setattr(Path, "unlink", break_off)
    with pytest.raises(RuntimeError, match="the power went"):
        packs.pack(folder)
    monkeypatch.undo()
    packs.unpack(folder)
    assert _read(folder) == before


def test_a_damaged_pack_is_reported_and_a_different_one_removes_nothing(
    folder: Path, engine: Engine, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _read(folder)
    with monkeypatch.context() as patch:
        patch.setattr(ZipFile, "read", lambda *args: b"other")
        with pytest.raises(DamagedFileError, match="reads back differently"):
            packs.pack(folder)
    assert _read(folder) == before
    packs.pack(folder)
    path = folder / packs.NAME
    path.write_bytes(path.read_bytes()[:200])
    assert packs.list_packed(folder) == []
    with pytest.raises(DamagedFileError, match="restore the file from a backup"):
        packs.unpack(folder)
    assert path.exists()
    (rejection,) = ingest_spool(engine, state).rejected
    assert rejection.path.parent == state.rejected and "backup" in rejection.reason
    assert ingest_spool(engine, state).rejected == ()  # one night fails, not every one


def test_a_wrong_byte_in_a_pack_costs_only_its_document(
    folder: Path, engine: Engine, state: State
) -> None:
    """Wherever it is: in the compressed data or in what describes it."""
    packs.pack(folder)
    path = folder / packs.NAME
    whole = path.read_bytes()
    with ZipFile(path) as packed:
        second = packed.infolist()[1].header_offset
    for position in (*range(60), *range(60, second, 97)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with suppress(DamagedFileError):  # some bytes mean nothing
            packs.unpack(folder)
        there = {each.name for each in folder.glob("*.json")}
        assert f"{IDS[1]}.json" in there, position
        for each in folder.glob("*.json"):
            each.unlink()
    damaged = bytearray(whole)
    damaged[second // 2] ^= 0x10
    path.write_bytes(damaged)
    report = ingest_spool(engine, state)
    assert report.ingested == (IDS[1],)
    (rejection,) = report.rejected
    assert f"{DUEL_RUN}.json: " in rejection.reason


def test_two_processes_that_pack_and_unpack_lose_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the one that unpacks removes the other's new pack, with all documents."""
    before = _read(folder)
    packs.pack(folder)
    write, written, packed = packs._write, list[Path](), Event()

    def pause(path: Path, content: bytes) -> None:
        write(path, content)
        written.append(path)
        if len(written) == len(IDS):
            started.set()
            packed.wait(0.5)

    started = Event()
    monkeypatch.setattr(packs, "_write", pause)
    with ThreadPoolExecutor(2) as processes:
        unpacking = processes.submit(packs.unpack, folder)
        assert started.wait(30)
        processes.submit(packs.pack, folder).add_done_callback(lambda _: packed.set())
    unpacking.result()
    packs.unpack(folder)
    assert _read(folder) == before

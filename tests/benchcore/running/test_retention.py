"""Pruning removes what no night needs, and nothing else."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from result_documents import DUEL_RUN, make_document
from stored_histories import add_suspicion

from benchcore.environments.build import list_environments, read_record
from benchcore.errors import UserError
from benchcore.planning.snapshot import take_snapshot
from benchcore.protocol import EnvironmentRecord, write_json
from benchcore.running import retention
from benchcore.running.retention import (
    DATA_DOCS,
    list_removals,
    list_sizes,
    list_unneeded,
    read_keep_nights,
    remove,
)
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.incoming import packs
from benchcore.store.incoming.ingest import insert_documents

DAY_S = 86_400.0
NAMES = ("oldest", "older", "newest")
"""Campaigns of three nights."""


@pytest.fixture
def state(tmp_path: Path) -> State:
    """Three nights, each with an environment of its own; all three use `shared`."""
    state = open_state(tmp_path / "state")
    shared = _install(state, "shared")
    for age, name in enumerate(reversed(NAMES)):
        folder = state.campaigns / name
        (folder / "duels" / "1").mkdir(parents=True)
        (folder / "duels" / "1" / "evidence.npz").write_bytes(bytes(50_000))
        (folder / "environments").mkdir()
        for number, record in enumerate((_install(state, f"of-{name}"), shared)):
            write_json(folder / "environments" / f"{number}.json", dataclasses.asdict(record))
        for file in ("plan.json", "progress.jsonl"):
            (folder / file).write_text("{}")
            _age(folder / file, age)
        document = state.spool / name / "1.json"
        document.parent.mkdir()
        document.write_text("{}")
        _age(document, age)
    return state


def _install(state: State, name: str) -> EnvironmentRecord:
    folder = state.environments / name
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_bytes(bytes(20_000))
    (folder / "files.json").write_text("{}")
    (folder / "requirements.lock").write_text(f"{name}==1\n")
    record = EnvironmentRecord(
        name=name,
        key=f"key-{name}",
        lock_sha256="0" * 64,
        python=str(python),
        python_version="3.13.0",
        build="default",
        packages={name: "1"},
    )
    write_json(folder / "environment.json", dataclasses.asdict(record))
    return record


def _age(path: Path, days: float) -> None:
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))


def _built(state: State) -> set[str]:
    return {record.name for record in list_environments(state)}


def _list_files(folder: Path) -> dict[str, bytes]:
    found = (each for each in sorted(folder.rglob("[!.]*")) if each.is_file())  # no locks
    return {str(each): each.read_bytes() for each in found}


def test_old_nights_lose_their_files_and_environments_and_newer_ones_nothing(state: State) -> None:
    spool, newest = _list_files(state.spool), _list_files(state.campaigns / "newest")
    freed = remove(list_removals(state, 1))
    assert freed >= 2 * 50_000 + 2 * 20_000
    assert _built(state) == {"of-newest", "shared"}
    assert not list(state.campaigns.glob("old*/duels"))
    assert sorted(state.spool.glob("[!r]*/*")) == [
        state.spool / "newest" / "1.json",
        *(state.spool / name / packs.NAME for name in ("older", "oldest")),
    ]
    for name in NAMES:
        packs.unpack(state.spool / name)
    assert _list_files(state.spool) == spool
    remove(list_removals(state, 1))
    assert _list_files(state.campaigns / "newest") == newest
    for name in NAMES:
        assert (state.campaigns / name / "plan.json").exists()
        lock = state.environments / f"of-{name}" / "requirements.lock"
        assert lock.read_text() == f"of-{name}==1\n"
    assert list_removals(state, 1) == []


def test_pages_of_older_duels_go_unless_a_shared_page_links_them(state: State) -> None:
    pages, shared = state.website / "data" / "duels", state.website / "data" / "pages"
    for folder in (pages, shared):
        folder.mkdir(parents=True)
    old, linked, new = (pages / f"{number:016x}.js" for number in range(3))
    for path in (old, linked, new):
        path.write_text("x" * 5000)
    for path in (old, linked):
        _age(path, 400)
    (shared / "guide.js").write_text(
        f'deadheat.receive("pages/guide",\n"duel.html#run={linked.stem}")'
    )
    (shared / "runs.js").write_bytes(b"damaged \xff")
    pruned = list_removals(state, 1)
    assert [each.path for each in pruned if each.part == "pages of duels"] == [old]
    remove(pruned)
    assert sorted(pages.iterdir()) == [linked, new]
    _age(new, 400)
    assert not [each for each in list_removals(state, 3) if each.path == new]  # all nights are kept


def test_data_docs_of_older_nights_go_unless_a_page_that_stays_links_them(state: State) -> None:
    docs = {name: state.data_docs(name) for name in NAMES}
    for folder in docs.values():
        folder.mkdir(parents=True)
        (folder / "index.html").write_text("x" * 5000)
    pages, shared = state.website / "data" / "duels", state.website / "data" / "pages"
    for folder in (pages, shared):
        folder.mkdir(parents=True)
    page = pages / f"{7:016x}.js"
    page.write_text('{"href": "older/checks/nightly-physics.html"}')
    _age(page, 400)
    (shared / "guide.js").write_text(f'"duel.html#run={page.stem}"')
    pruned = [each for each in list_removals(state, 1) if each.part == DATA_DOCS]
    assert [each.path for each in pruned] == [docs["oldest"]] and pruned[0].num_bytes >= 5000
    remove(pruned)
    assert docs["older"].exists() and docs["newest"].exists() and not docs["oldest"].exists()
    (shared / "guide.js").unlink()
    remove(list_removals(state, 1))
    assert not docs["older"].exists() and not page.exists()


def test_as_many_nights_are_kept_as_wanted(state: State) -> None:
    remove(list_removals(state, 2))
    assert _built(state) == {"of-older", "of-newest", "shared"}
    assert {each.parent.name for each in state.campaigns.glob("*/duels")} == {"older", "newest"}
    assert list_removals(state, 3) == []


def test_two_campaigns_of_one_day_are_one_night(state: State) -> None:
    _age(state.campaigns / "older" / "plan.json", 0)
    remove(list_removals(state, 1))
    assert _built(state) == {"of-older", "of-newest", "shared"}


def test_an_environment_that_an_undecided_suspicion_compares_is_kept(state: State) -> None:
    remove(list_removals(state, 1, {"key-of-oldest"}))
    assert _built(state) == {"of-oldest", "of-newest", "shared"}


def test_the_database_names_the_environments_that_are_kept(state: State) -> None:
    document = make_document()
    document["contenders"][0]["environment"]["key"] = "key-of-oldest"
    engine = open_database(state.database_url)
    insert_documents(engine, [document])
    add_suspicion(engine, DUEL_RUN)
    engine.dispose()
    remove(list_unneeded(state, 1))
    assert _built(state) == {"of-oldest", "of-newest", "shared"}


def test_a_python_that_we_did_not_install_is_never_removed(state: State, tmp_path: Path) -> None:
    foreign = tmp_path / "python"
    foreign.write_bytes(bytes(1000))
    record = read_record(state.environments / "of-oldest" / "environment.json")
    assert record is not None
    adopted = dataclasses.replace(record, lock_sha256=None, python=str(foreign))
    write_json(state.environments / "of-oldest" / "environment.json", dataclasses.asdict(adopted))
    remove(list_removals(state, 1))
    assert foreign.exists() and "of-oldest" in _built(state)


def test_an_environment_that_another_process_builds_is_left_alone(state: State) -> None:
    removals = list_removals(state, 1)
    with FileLock(state.environments / "of-oldest.lock"):
        remove(removals)
    assert _built(state) == {"of-oldest", "of-newest", "shared"}
    remove(list_removals(state, 1))
    assert _built(state) == {"of-newest", "shared"}


def test_files_that_uv_holds_as_well_free_nothing(state: State, tmp_path: Path) -> None:
    python = state.environments / "of-oldest" / "venv" / "bin" / "python"
    (tmp_path / "cache").hardlink_to(python)
    frees = {each.path.name: each.num_bytes for each in list_removals(state, 1)}
    assert frees["of-oldest"] < 20_000 <= frees["of-older"]


def test_old_snapshots_go_and_the_current_one_stays(state: State) -> None:
    current = take_snapshot(state.snapshots)
    old, fresh = state.snapshots / ("0" * 64), state.snapshots / ("1" * 64)
    for folder in (old, fresh):
        folder.mkdir()
    for folder in (current, old):
        _age(folder, 3)
    remove(list_removals(state, 3))
    assert set(state.snapshots.glob("[!.]*")) == {current, fresh}


def test_an_interrupted_removal_looks_like_nothing_whole_and_is_completed(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(folder: Path) -> None:
        raise KeyboardInterrupt

    real = shutil.rmtree
    for _ in range(2):
        monkeypatch.setattr(retention.shutil, "rmtree", stop)
        with pytest.raises(KeyboardInterrupt):
            remove(list_removals(state, 1)[::-1])
    assert len(_built(state)) == 2  # two environments are gone at once, not half
    monkeypatch.setattr(retention.shutil, "rmtree", real)
    for left in state.root.glob("*/*/.removed-*"):
        _age(left, 2)
    remove(list_removals(state, 1))
    assert not list(state.root.glob("*/*/.removed-*"))
    assert _built(state) == {"of-newest", "shared"}


def test_the_size_of_each_part_is_listed(state: State) -> None:
    sizes = list_sizes(state)
    assert sizes["environments"] >= 4 * 20_000 and sizes["campaigns"] >= 3 * 50_000


def test_files_that_vanish_while_a_duel_runs_have_no_size(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They vanish between being listed and being looked at."""
    before = list_sizes(state)["campaigns"]
    scratch = state.campaigns / "newest" / "duels" / "1.0123abcd"
    (scratch / "logs").mkdir(parents=True)
    for file in (scratch / "order.json", scratch / "logs" / "conductor.log"):
        file.write_bytes(bytes(9_000))
    lists, status = os.scandir, Path.lstat

    def list_late(path: Any) -> Any:
        if str(path) == str(scratch / "logs"):
            shutil.rmtree(path)
        return lists(path)

    def look_late(path: Path) -> os.stat_result:
        if path == scratch / "order.json":
            path.unlink(missing_ok=True)
        return status(path)

    monkeypatch.setattr(os, "scandir", list_late)
    monkeypatch.setattr(Path, "lstat", look_late)
    assert list_sizes(state)["campaigns"] == before
    assert not any(scratch.iterdir())


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "1000000", " 3"])
def test_a_number_of_nights_that_is_none_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_KEEP_NIGHTS", text)
    with pytest.raises(UserError, match=r"1 or more in DEADHEAT_KEEP_NIGHTS, got"):
        read_keep_nights()


def test_all_files_are_kept_unless_a_number_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_keep_nights() is None
    monkeypatch.setenv("DEADHEAT_KEEP_NIGHTS", "30")
    assert read_keep_nights() == 30

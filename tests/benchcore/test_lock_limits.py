"""A process that is stopped while it holds a lock keeps no other one waiting forever."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from filelock import FileLock

from benchcore import state as states
from benchcore.environments.release_watch import check_index
from benchcore.errors import UserError
from benchcore.experiments.alerting.outbox import send_waiting
from benchcore.planning.snapshot import take_snapshot
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.incoming.ingest import ingest_spool
from dashboards.publish import refresh_pages
from data_checks.rebuild import rebuild_database


def _ingest(state: State) -> None:
    ingest_spool(open_database(state.database_url), state)


_WAITING: Mapping[str, Callable[[State], object]] = {
    "deadheat.db.lock": lambda state: open_database(state.database_url),
    "deadheat.db.rebuild.lock": lambda state: rebuild_database(state, lambda text: None),
    "releases.json.lock": lambda state: check_index(state, ()),
    "site/.publish.lock": refresh_pages,
    "snapshots/.lock": lambda state: take_snapshot(state.snapshots),
    "spool/.ingest.lock": _ingest,
    "alerts/.lock": send_waiting,
}


@pytest.mark.parametrize("name", _WAITING)
def test_waiting_for_a_lock_ends(name: str, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "LONGEST_LOCK_WAIT_S", 0.1)
    path = state.root / name
    path.parent.mkdir(exist_ok=True)
    with FileLock(path), pytest.raises(UserError, match=r"has held it for 0\.1 s"):
        _WAITING[name](state)


def test_a_lock_is_free_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "some.lock"
    for _ in range(2):
        with pytest.raises(OSError, match="no space"), states.hold_lock(path):
            raise OSError("no space")

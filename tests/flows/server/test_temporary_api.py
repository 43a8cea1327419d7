"""A temporary server comes up whatever earlier ones left."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flows.server.temporary_api import _move_damaged


@pytest.mark.parametrize("how", ["cut", "overwritten"])
def test_a_damaged_database_is_moved_away_and_a_sound_one_stays(tmp_path: Path, how: str) -> None:
    path, memo = tmp_path / "prefect.db", tmp_path / "memo_store.toml"
    _move_damaged(tmp_path)  # there is none
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE log (line TEXT)")
        made.executemany("INSERT INTO log VALUES (?)", [("x" * 1000,)] * 100)
    memo.touch()
    sound = path.read_bytes()
    _move_damaged(tmp_path)
    assert path.read_bytes() == sound and memo.exists()
    path.write_bytes(sound[:1000] if how == "cut" else b"no database" * 500)
    _move_damaged(tmp_path)
    assert not path.exists() and not memo.exists()
    assert (tmp_path / "prefect.db.damaged").exists()

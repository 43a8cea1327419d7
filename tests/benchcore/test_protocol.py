"""Files that several processes write: whole, and each on its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchcore.protocol import write_json


def test_two_processes_that_write_one_file_do_not_remove_each_others_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As shards on two nodes do, whose processes may have the same number."""
    path = tmp_path / "environment.json"

    def come_between(_: int) -> None:
        monkeypatch.undo()
        write_json(path, "the other's")
        assert json.loads(path.read_text()) == "the other's"

    monkeypatch.setattr("benchcore.protocol.os.fsync", come_between)
    write_json(path, "one's own")
    assert json.loads(path.read_text()) == "one's own"
    assert list(tmp_path.iterdir()) == [path]

"""What processes exchange: orders survive JSON, and files that several write stay whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from duel_orders import make_contender, make_order

from benchcore.protocol import decode_order, encode, write_json


def test_the_order_survives_json() -> None:
    order = make_order(make_contender("a"), make_contender("b"))
    assert decode_order(json.loads(json.dumps(encode(order)))) == order
    with pytest.raises(ValueError, match="unknown extra; write it again"):
        decode_order({**encode(order), "extra": 1})
    with pytest.raises(ValueError, match="schema 1, got 2"):
        decode_order({**encode(order), "schema": 2})


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

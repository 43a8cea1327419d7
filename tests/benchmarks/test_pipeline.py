"""Every second of a campaign is accounted for once."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline import LATENCIES, TIMED, account
from result_documents import make_document


def test_every_second_belongs_to_one_stage() -> None:
    events: list[dict[str, Any]] = [
        {"time": 0.0, "event": "campaign"},
        {"time": 5.0, "event": "environment"},
        {"time": 9.0, "event": "duel", "what": "begun"},
        {"time": 9.5, "event": "stage", "stage": "import"},
        {"time": 11.5, "event": "stage", "stage": "compile"},
        {"time": 14.5, "event": "round"},
        {"time": 74.5, "event": "evidence", "start": 0},
        {"time": 80.5, "event": "passes"},
        {"time": 94.5, "event": "duel", "what": "done"},
        {"time": 95.0, "event": "something new"},
        {"time": 96.0, "event": "campaign"},
    ]
    document = make_document()
    seconds = account(events, [document])
    starts = [start for contender in document["contenders"] for start in contender["starts"]]
    timed = sum(block["elapsed_ns"] for start in starts for block in start["blocks"]) / 1e9
    assert seconds[TIMED] == pytest.approx(timed) and timed > 0
    latencies_ns = sum(sum(start["latency_ns"] or ()) for start in starts)
    assert seconds[LATENCIES] == pytest.approx(latencies_ns / 1e9)
    assert (seconds["planning"], seconds["environments"], seconds["import"]) == (5.0, 4.0, 2.0)
    assert seconds["evidence after the blocks"] == 6.0
    assert seconds["passes: memory, profile, energy"] == 14.0
    assert seconds["something new"] == 1.0
    assert sum(seconds.values()) == pytest.approx(96.0)

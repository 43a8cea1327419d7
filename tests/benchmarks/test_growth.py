"""What the benchmark of many cheap duels reads of a command."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from growth import list_matches, read_costs, read_peak_bytes, watch
from result_documents import make_document

_WRITES = """
import pathlib, sys, time
held = bytearray(200_000_000)
for number in range(int(sys.argv[2])):
    pathlib.Path(sys.argv[1], f"{number}.json").touch()
    time.sleep(0.2)
time.sleep(0.5)
"""


def test_a_campaign_has_so_many_different_duels() -> None:
    assert len({each.limits.budget_s for each in list_matches(7) if each.limits}) == 7


def test_seconds_per_duel_and_the_commands_own_peak_are_read(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITES, str(tmp_path), "3"]
    found = watch(command, os.environ, tmp_path, 3)
    assert found["duels"] == 3
    assert found["wall_s"] >= 1.0
    assert found["peak_mb"] >= 200
    assert 0 < found["cpu_s"] < found["wall_s"]
    assert found["ms_per_duel"] >= 100


@pytest.mark.parametrize("written", [0, 2])
def test_a_command_that_leaves_out_a_duel_is_no_row(tmp_path: Path, written: int) -> None:
    command = [sys.executable, "-c", _WRITES, str(tmp_path), str(written)]
    with pytest.raises(SystemExit, match=f"wanted 3 documents and exit code 0, got {written} and"):
        watch(command, os.environ, tmp_path, 3)


_PREFECT = """
CREATE TABLE flow (id TEXT, name TEXT);
CREATE TABLE flow_run
    (flow_id TEXT, total_run_time TEXT, expected_start_time TEXT, start_time TEXT, end_time TEXT);
CREATE TABLE task_run
    (task_key TEXT, total_run_time TEXT, expected_start_time TEXT, start_time TEXT, end_time TEXT);
INSERT INTO flow VALUES ('1', 'measure'), ('2', 'another');
INSERT INTO flow_run VALUES
    ('1', '1970-01-01 00:00:09.500000', '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.250000',
     '2026-01-01 00:00:09.750000'),
    ('2', '0', '2026-01-01 00:00:00.000000', NULL, NULL);
INSERT INTO task_run VALUES
    ('measure_duel-59e689db', '1970-01-01 00:00:01.500000', '2026-01-01 00:00:01.000000',
     '2026-01-01 00:00:01.010000', '2026-01-01 00:00:02.510000'),
    ('measure_duel-59e689db', '1970-01-01 00:00:02.500000', '2026-01-01 00:00:03.000000',
     '2026-01-01 00:00:03.030000', '2026-01-01 00:00:05.530000'),
    ('measure_duel-59e689db', '0', '2026-01-01 00:00:06.000000', NULL, NULL),
    ('ingest_results-87bd6d32', '1970-01-01 00:00:00.100000', '2026-01-01 00:00:09.000000',
     '2026-01-01 00:00:09.000000', '2026-01-01 00:00:09.100000');
"""


def test_each_flow_and_task_costs_its_part_of_a_duel(tmp_path: Path) -> None:
    for index, second in enumerate(("09", "11")):
        document = make_document()
        document["allocation"]["started_at"] = "2026-01-01T00:00:08+00:00"
        document["allocation"]["ended_at"] = f"2026-01-01T00:00:{second}+00:00"
        (tmp_path / f"{index}.json").write_text(json.dumps(document))
    with closing(sqlite3.connect(tmp_path / "prefect.db")) as database:
        database.executescript(_PREFECT)
    assert read_costs(tmp_path / "prefect.db", tmp_path) == {
        "duel": {"ms": 2000.0},
        "flow measure": {"ms": 4750.0, "waiting_ms": 125.0},
        "task measure_duel": {"ms": 2000.0, "waiting_ms": 20.0},
        "task ingest_results": {"ms": 50.0, "waiting_ms": 0.0},
    }


def test_a_process_that_has_ended_has_no_peak() -> None:
    assert read_peak_bytes(2**22 + 1) == 0

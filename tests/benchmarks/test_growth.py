"""What the benchmark of many cheap duels reads of a command."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from growth import list_matches, read_peak_bytes, watch

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


def test_a_process_that_has_ended_has_no_peak() -> None:
    assert read_peak_bytes(2**22 + 1) == 0

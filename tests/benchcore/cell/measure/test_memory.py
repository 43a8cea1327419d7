"""Whose memory is counted, and from when on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchcore.cell.measure import memory

ROOT = Path(__file__).parents[4]
BIG = 150_000_000
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")


def _python(code: str) -> list[int]:
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [int(number) for number in run.stdout.split()]


def test_the_memory_peak_excludes_the_parent_process() -> None:
    """`ru_maxrss` remembers what was resident before exec: here the big parent's memory."""
    child = (
        "import resource; from benchcore.cell.measure import memory;"
        "print(memory.read_peak('cpu'), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    parent = (
        f"import os, sys; held = b'x' * {BIG};"
        f"pid = os.fork(); pid or os.execv(sys.executable, [sys.executable, '-c', {child!r}]);"
        "os.waitpid(pid, 0)"
    )
    ours, theirs = _python(parent)
    assert theirs > BIG > ours


def test_memory_used_before_the_baseline_is_not_in_the_peak() -> None:
    baseline, peak = _python(
        f"held = b'x' * {BIG}; del held; from benchcore.cell.measure import memory;"
        f"print(memory.take_baseline('cpu')); held = b'x' * {BIG // 3};"
        "print(memory.read_peak('cpu'))"
    )
    assert baseline < BIG
    assert BIG // 3 <= peak - baseline < BIG // 2


def test_if_the_peak_cannot_be_reset_the_baseline_is_the_peak(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = tmp_path / "self"
    (here / "clear_refs").mkdir(parents=True)
    (here / "status").write_text("VmHWM: 3072 kB\nVmRSS: 1024 kB\n")
    monkeypatch.setattr(memory, "_PROC", tmp_path)
    assert memory.take_baseline("cpu") == memory.read_peak("cpu") == 3072 * 1024


def test_a_peak_is_at_least_the_baseline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = tmp_path / "self"
    here.mkdir()
    (here / "status").write_text("VmHWM: 3072 kB\n")
    monkeypatch.setattr(memory, "_PROC", tmp_path)
    for baseline, peak in ((3076, 3076), (1024, 3072)):
        found = memory.read_process("cpu", None, baseline * 1024)
        assert found["process_baseline_bytes"] == baseline * 1024
        assert found["process_peak_bytes"] == peak * 1024
    gone: Any = SimpleNamespace(pids=[1])
    unknown = memory.read_process("cpu", gone, 1024)
    assert unknown == {"process_baseline_bytes": 1024, "process_peak_bytes": None}


def test_without_proc_getrusage_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_PROC", tmp_path / "missing")
    peak = memory.read_peak("cpu")
    assert peak is not None and peak > 2**20


def test_the_memory_of_a_group_is_that_of_all_its_processes() -> None:
    """JAX has all devices of a CPU in one process, torch a process for each."""
    hold = f"import sys; held = b'x' * {BIG}; print('holds', flush=True); sys.stdin.read()"
    member = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert member.stdout is not None and member.stdout.readline() == b"holds\n"
        group: Any = SimpleNamespace(pids=[member.pid])
        alone, both = memory.read_peak("cpu"), memory.read_peak("cpu", group)
        assert alone is not None and both is not None and both - alone > BIG
        resident = memory.take_baseline("cpu", group)
        assert resident is not None and resident > BIG
    finally:
        member.kill()
        member.communicate()
    assert memory.read_peak("cpu", group) is None, "null where one process is gone, never less"

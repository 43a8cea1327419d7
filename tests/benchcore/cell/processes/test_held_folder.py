"""What a killed process leaves in shared memory is removed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchcore.cell.processes.held_folder import HeldFolder

ROOT = Path(__file__).parents[4]
_KILLED = """
import os, signal, sys
from pathlib import Path
from benchcore.cell.processes.held_folder import HeldFolder
held = HeldFolder("ring-", Path(sys.argv[1]))
(held.path / "ring").write_bytes(b"123")
os.kill(os.getpid(), signal.SIGKILL)
"""


def _make_old(folder: Path) -> None:
    os.utime(folder, ns=(0, 0))


def test_only_the_folders_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    held = HeldFolder("ring-", tmp_path)
    _make_old(held.path)
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], cwd=ROOT, check=False)
    (left,) = {*tmp_path.iterdir()} - {held.path}
    other = tmp_path / "other"
    other.mkdir()
    _make_old(other)
    young = HeldFolder("ring-", tmp_path)
    assert {*tmp_path.iterdir()} == {held.path, left, other, young.path}, "it may be new"
    _make_old(left)
    another = HeldFolder("ring-", tmp_path)
    assert {*tmp_path.iterdir()} == {held.path, other, young.path, another.path}
    for each in (held, young, another):
        each.remove()
    assert [*tmp_path.iterdir()] == [other]

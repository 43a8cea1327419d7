"""The snapshot: complete on its own, read-only, and named by its content."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchcore.planning.snapshot import hash_inside, list_inside_files, take_snapshot

ROOT = Path(__file__).parents[3]
ALLOWED = {
    "jax": {"jax", "jaxlib", "flax", "optax"},
    "torch": {"torch", "torchvision", "opacus"},
    "triton": {"torch", "triton"},
}


def test_a_snapshot_is_taken_once_and_is_read_only(tmp_path: Path) -> None:
    first = take_snapshot(tmp_path)
    assert first.name == hash_inside()
    assert take_snapshot(tmp_path) == first
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == [first.name]
    copies = sorted(path.relative_to(first) for path in first.rglob("*.py"))
    assert copies == list_inside_files()
    assert all(not (first / file).stat().st_mode & 0o222 for file in copies)


@pytest.mark.parametrize("damage", ["emptied", "removed", "changed"])
def test_a_damaged_snapshot_is_taken_again(tmp_path: Path, damage: str) -> None:
    first = take_snapshot(tmp_path)
    victim = first / "benchcore" / "cell" / "start.py"
    victim.chmod(0o644)
    if damage == "removed":
        victim.unlink()
    else:
        victim.write_text("" if damage == "emptied" else victim.read_text().replace("1", "2", 1))
    again = take_snapshot(tmp_path)
    assert again == first and hash_inside(again / "benchcore") == first.name
    assert [path.name for path in tmp_path.iterdir() if path.name[0] != "."] == [first.name]


def test_a_snapshot_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash leaves its name with empty files."""
    done: list[str] = []
    sync, rename = os.fsync, Path.rename

    def note_sync(descriptor: int) -> None:
        sync(descriptor)
        done.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    def note_rename(path: Path, target: Path) -> Path:
        assert set(done) == {str(each) for each in (path, *path.rglob("*"))}
        done.append("renamed")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "rename", note_rename)
    take_snapshot(tmp_path)
    assert done[-1] == "renamed"


def test_a_snapshot_imports_alone_without_any_package(tmp_path: Path) -> None:
    snapshot = take_snapshot(tmp_path)
    code = "import benchcore.cell.conductor, benchcore.cell.contender, benchcore.cell.__main__"
    subprocess.run(
        [sys.executable, "-S", "-P", "-B", "-c", code],
        env={"PYTHONPATH": str(snapshot)},
        check=True,
        cwd=tmp_path,
    )


def test_the_inside_ring_imports_only_what_a_measured_environment_has() -> None:
    """Standard library, numpy, NVML, itself; a framework only in that framework's own files."""
    for file in list_inside_files():
        side = next(
            (side for side in ALLOWED if file.stem in (f"in_{side}", f"{side}_runtime")), ""
        )
        allowed = {"benchcore", "numpy", "pynvml", *ALLOWED.get(side, ())}
        if file.name == "decoding.py":  # which no contender imports
            allowed.add("PIL")
        for name in _imported(ROOT / file):
            top = name.partition(".")[0]
            assert top in allowed or top in sys.stdlib_module_names, f"{file} imports {name}"


def test_specs_import_no_framework_and_no_runtime() -> None:
    for file in (ROOT / "benchcore" / "workloads").glob("*/spec.py"):
        for name in _imported(file):
            inside = name.startswith("benchcore.") and name != "benchcore.program"
            assert not inside or name.startswith("benchcore.workloads."), f"{file} imports {name}"


def _imported(file: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return names


def _run_inside(snapshot: Path, code: str, *options: str) -> str:
    """What the code prints on stderr, as a conductor runs it."""
    environ = {"PYTHONPATH": str(snapshot), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", *options, "-c", code]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stderr


def test_only_whole_bytecode_stays_in_a_snapshot(tmp_path: Path) -> None:
    """Python itself would run what a crash left, or end with it: it checks the header only."""
    snapshot = take_snapshot(tmp_path)
    store = "from benchcore.cell.processes.bytecode import store_bytecode; store_bytecode('noop')"
    _run_inside(snapshot, store)
    stored = {path: path.read_bytes() for path in snapshot.rglob("*.pyc")}
    compiled = {path.relative_to(snapshot).parts[1] for path in stored}
    assert {"cell", "workloads"} < compiled and not list(snapshot.rglob("*.part"))
    loaded = _run_inside(snapshot, "import benchcore.cell.start", "-v")
    assert re.search(r"code object from '.*/cell/__pycache__/start\.[a-z0-9-]+\.pyc'", loaded)
    take_snapshot(tmp_path)
    assert stored == {path: path.read_bytes() for path in snapshot.rglob("*.pyc")}
    cut, flipped, own, *others = sorted(stored)
    cut.write_bytes(stored[cut][: len(stored[cut]) // 2])
    damaged = bytearray(stored[flipped])
    damaged[len(damaged) // 2] ^= 1
    flipped.write_bytes(damaged)
    own.write_bytes(stored[own][:-32])  # as Python writes it
    take_snapshot(tmp_path)
    assert {*snapshot.rglob("*.pyc")} == {*others}
    _run_inside(snapshot, store)
    assert {*snapshot.rglob("*.pyc")} == {*stored}

"""A read-only copy of the measured layer: it stays the same, whatever happens to the checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from pathlib import Path

from benchcore.cell.processes.bytecode import remove_damaged_bytecode
from benchcore.state import hold_lock

_PACKAGE = Path(__file__).parent.parent
_INSIDE = (
    "__init__.py",
    "device_names.py",
    "json_types.py",
    "program.py",
    "protocol.py",
    "cell",
    "workloads",
)


def list_inside_files(package: Path = _PACKAGE) -> list[Path]:
    """Every source file of the measured layer, relative to the package's parent, sorted."""
    files: list[Path] = []
    for name in _INSIDE:
        path = package / name
        files += [path] if path.is_file() else path.rglob("*.py")
    return sorted(file.relative_to(package.parent) for file in files)


def hash_inside(package: Path = _PACKAGE) -> str:
    """SHA-256 over names and bytes of the measured layer, by default that of our own code."""
    sha = hashlib.sha256()
    for file in list_inside_files(package):
        content = (package.parent / file).read_bytes()
        sha.update(f"{file.as_posix()}\0{len(content)}\0".encode() + content)
    return sha.hexdigest()


def take_snapshot(folder: Path) -> Path:
    """Copy the measured layer to `folder/<hash>` unless it is there; what goes on PYTHONPATH.

    A copy whose content does not have that hash, as after a crash, is replaced. Bytecode in it that
    a crash damaged is removed: the next conductor stores it again.
    """
    wanted = hash_inside()
    target = folder / wanted
    if _is_snapshot(target, wanted):
        remove_damaged_bytecode(target)
        return target
    with hold_lock(folder / ".lock"):
        if not _is_snapshot(target, wanted):
            part = _copy_inside(folder)
            if target.exists():
                _move_away(target)
            part.rename(target)
    return target


def _copy_inside(folder: Path) -> Path:
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
    for file in list_inside_files():
        copy = part / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((_PACKAGE.parent / file).read_bytes())
        copy.chmod(0o444)
    part.chmod(0o755)
    _sync(part)
    return part


def _is_snapshot(target: Path, wanted: str) -> bool:
    try:
        return hash_inside(target / "benchcore") == wanted
    except OSError:
        return False


def _move_away(target: Path) -> None:
    """Rename first: processes that still run from the damaged copy keep their open files."""
    shutil.rmtree(target.rename(target.with_name(f".damaged-{uuid.uuid4().hex[:8]}")))


def _sync(part: Path) -> None:
    """Have everything on the disk before it gets its name."""
    for path in (*part.rglob("*"), part):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""A read-only copy of the inside ring: what measures is fixed, whatever happens to the checkout."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
_INSIDE = ("__init__.py", "json_types.py", "program.py", "protocol.py", "cell", "workloads")


def list_inside_files() -> list[Path]:
    """Every source file of the inside ring, relative to the package's parent, sorted."""
    files: list[Path] = []
    for name in _INSIDE:
        path = _PACKAGE / name
        files += [path] if path.is_file() else path.rglob("*.py")
    return sorted(file.relative_to(_PACKAGE.parent) for file in files)


def hash_inside() -> str:
    """SHA-256 over names and bytes of the inside ring."""
    sha = hashlib.sha256()
    for file in list_inside_files():
        content = (_PACKAGE.parent / file).read_bytes()
        sha.update(f"{file.as_posix()}\0{len(content)}\0".encode() + content)
    return sha.hexdigest()


def take_snapshot(folder: Path) -> Path:
    """Copy the inside ring to `folder/<hash>` unless it is there; what goes on PYTHONPATH."""
    target = folder / hash_inside()
    if not target.exists():
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
        for file in list_inside_files():
            copy = part / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_PACKAGE.parent / file, copy)
            copy.chmod(0o444)
        part.chmod(0o755)
        try:
            part.rename(target)
        except OSError:  # another process was faster, with the same bytes
            shutil.rmtree(part)
            target.stat()
    return target

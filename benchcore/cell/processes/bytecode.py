"""Stores the bytecode of what contenders load, as none of them may write to the folders of the code
that it runs.

Python checks only the date and the size of the source, so a bytecode file that a crash or a full
disk cut would end every contender. Each file therefore ends with its hash, which Python ignores,
and taking a snapshot removes files without their hash.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

from benchcore.protocol import name_part
from benchcore.workloads.contract import import_spec

_PACKAGE = Path(__file__).parents[2]
_HEADER_BYTES = 16


def store_bytecode(workload: str) -> None:
    """Compile the harness, one workload and what its specification imports for this Python, unless
    that was done before: otherwise each contender would compile in each start. Files that can't be
    written are compiled there, as before."""
    import_spec(workload)
    for source in _list_sources():
        path = Path(cache_from_source(str(source)))
        if not path.exists():
            with suppress(OSError):
                _store(source, path)


def _list_sources() -> Iterator[Path]:
    workloads = _PACKAGE / "workloads"
    yield from _PACKAGE.glob("*.py")
    yield from (_PACKAGE / "cell").rglob("*.py")
    yield from workloads.glob("*.py")
    loaded = {each.split(".")[2] for each in sys.modules if each.startswith("benchcore.workloads.")}
    for name in sorted(loaded):
        yield from (workloads / name).rglob("*.py")


def _store(source: Path, path: Path) -> None:
    """Raises OSError."""
    import marshal
    import py_compile

    part = name_part(path)
    try:
        py_compile.compile(str(source), cfile=str(part), doraise=True)
        content = part.read_bytes()
        marshal.loads(content[_HEADER_BYTES:])  # py_compile overlooks that a disk is full
        part.write_bytes(content + _hash(content))
        part.replace(path)
    except (py_compile.PyCompileError, EOFError, ValueError, TypeError):
        return  # contenders compile it
    finally:
        part.unlink(missing_ok=True)


def remove_damaged_bytecode(folder: Path) -> None:
    """Remove the bytecode in a folder that does not end with its hash."""
    size = hashlib.sha256().digest_size
    for path in folder.rglob("*.pyc"):
        with suppress(FileNotFoundError):  # another process removed it
            content = path.read_bytes()
            if _hash(content[:-size]) != content[-size:]:
                path.unlink()


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()

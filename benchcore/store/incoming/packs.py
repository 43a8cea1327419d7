"""Packs the documents of a campaign into one compressed file, a tenth of their size, and back."""

from __future__ import annotations

import os
import zlib
from contextlib import AbstractContextManager, suppress
from lzma import LZMAError
from pathlib import Path
from struct import Struct
from zipfile import ZIP_LZMA, BadZipFile, ZipFile

from benchcore.errors import DamagedFileError, and_more
from benchcore.protocol import name_part
from benchcore.state import hold_lock

NAME = "documents.zip"
"""Beside the documents in the campaign's folder of the spool. `unzip` and Python can open it."""
_END = Struct("<4s6xH10x")
"""The last record of a zip file without a comment: its signature, and how many files it holds."""
_MOST = 0xFFFF
_DAMAGED = (BadZipFile, EOFError, ValueError, RuntimeError, MemoryError, LZMAError, zlib.error)
"""What reading a damaged pack raises, by where the wrong byte is."""
_MOST_NAMED = 3


def pack(folder: Path) -> int:
    """Pack a campaign's documents; the bytes freed. Each is compared before it is removed.

    Interrupted, it leaves the documents, or documents and pack, which another call puts right.
    """
    with _hold(folder):
        return _pack(folder)


def _hold(folder: Path) -> AbstractContextManager[None]:
    """Let one process at a time pack or unpack. Otherwise one that unpacks could remove a pack that
    another one has just written."""
    return hold_lock(folder.parent / ".packs.lock")


def _pack(folder: Path) -> int:
    _unpack(folder)
    documents = sorted(folder.glob("*.json"))
    if not documents:
        return 0
    before = sum(each.stat().st_size for each in documents)
    part = name_part(folder / NAME)
    try:
        with ZipFile(part, "w", ZIP_LZMA) as packed:
            for each in documents:
                packed.write(each, each.name)
        _check_same(part, documents)
        _sync(part)
        part.replace(folder / NAME)
    finally:
        part.unlink(missing_ok=True)
    for each in documents:
        each.unlink()
    return before - (folder / NAME).stat().st_size


def unpack(folder: Path) -> None:
    """Put a campaign's packed documents back, unless it has no pack; one that is there stays.

    Several processes may do so at once. Raises DamagedFileError for a pack that can't be read, once
    the documents that can are back.
    """
    if (folder / NAME).exists():
        with _hold(folder):
            _unpack(folder)


def _unpack(folder: Path) -> None:
    path = folder / NAME
    damaged = list[str]()
    with suppress(FileNotFoundError):  # there is none, or another process was faster
        try:
            with ZipFile(path) as packed:
                for name in packed.namelist():
                    try:
                        content = packed.read(name)
                    except _DAMAGED as error:
                        damaged.append(f"{Path(name).name}: {error}")
                        continue
                    _write(folder / Path(name).name, content)
        except _DAMAGED as error:
            damaged.append(str(error))
    if damaged:
        more = and_more(len(damaged) - _MOST_NAMED)
        raise DamagedFileError(
            f"wanted the packed documents {str(path)!r}, but {'; '.join(damaged[:_MOST_NAMED])}"
            f"{more}; restore the file from a backup. The database still has what was ingested "
            "from it"
        )
    path.unlink(missing_ok=True)


def list_packed(folder: Path) -> list[str]:
    """The duel runs in a campaign's pack. Reads only its table of contents."""
    try:
        with ZipFile(folder / NAME) as packed:
            return [Path(each).stem for each in packed.namelist()]
    except (OSError, *_DAMAGED):  # damaged: `unpack` reports that
        return []


def count_packed(folder: Path) -> int | None:
    """How many documents a campaign's pack holds, by its last bytes; None = it has no whole pack,
    or 65,535 documents or more."""
    try:
        with (folder / NAME).open("rb") as stream:
            stream.seek(-_END.size, os.SEEK_END)
            signature, number = _END.unpack(stream.read(_END.size))
    except OSError:
        return None
    return number if signature == b"PK\5\6" and number < _MOST else None


def _write(path: Path, content: bytes) -> None:
    part = name_part(path)
    try:
        part.write_bytes(content)
        _sync(part)
        os.link(part, path)  # unlike a rename, it never replaces
    except FileExistsError:
        return
    finally:
        part.unlink(missing_ok=True)


def _check_same(part: Path, documents: list[Path]) -> None:
    with ZipFile(part) as packed:
        for each in documents:
            if packed.read(each.name) != each.read_bytes():
                raise DamagedFileError(
                    f"wanted to pack {str(each)!r}, but it reads back differently; check the disk. "
                    "Nothing was removed"
                )


def _sync(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())

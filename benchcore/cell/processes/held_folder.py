"""Folders for a process's temporary files, such as shared memory. A process that was killed can't
remove its folder, which would fill the memory, so the next process that makes such a folder removes
it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_YOUNG_S = 60.0
"""A younger folder may not be locked yet."""


class HeldFolder:
    """A new folder in `parent`, locked until it is removed or this process ends. Making it removes
    those of the same prefix whose processes have ended."""

    def __init__(self, prefix: str, parent: Path) -> None:
        remove_left(prefix, parent)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._lock = os.open(self.path, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks, on which none is removed
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_left(prefix: str, parent: Path) -> None:
    """Remove the folders of this prefix whose processes have ended."""
    for each in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # held, gone, or another user's
            _remove(each)


def _remove(folder: Path) -> None:
    """Raises OSError if its process has not ended."""
    status = folder.lstat()
    if status.st_uid != os.getuid() or time.time() - status.st_mtime < _YOUNG_S:
        return
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)

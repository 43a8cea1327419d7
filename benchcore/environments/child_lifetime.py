"""Ties a command to the thread that runs it: a process that was killed leaves no build behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_CODE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):
    os._exit(1)  # it died a moment ago
os.execv(sys.argv[2], sys.argv[2:])
"""


def tie_to_thread(command: Sequence[str]) -> list[str]:
    """The command as one that Linux kills when the thread that started it ends. The first word is a
    path. A program in between sets this, as Python must not run in a fork of a process that has
    threads."""
    if sys.platform != "linux":
        return [*command]
    return [sys.executable, "-I", "-S", "-c", _CODE, str(os.getpid()), *command]

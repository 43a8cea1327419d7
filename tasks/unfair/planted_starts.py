"""Forks the contenders of unfair sides from processes that have imported their frameworks.

Runs inside a conductor, in a copy of the measured layer that `tasks.unfair.plants` makes: there
is one import per framework, not one per contender. What was imported holds no device and no
program.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import IO

from .planted_forks import set_objects_aside, set_variables  # beside it in the copy, too

_PAUSE_S = 0.005
_LATE = (
    "JAX_COMPILATION_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "XLA_FLAGS",
)
"""Variables that a framework reads after its import, or that its configuration has by a name."""


class ForkedProcess:
    """The part of `subprocess.Popen` that the harness uses, for a child that another process
    started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            else:
                time.sleep(_PAUSE_S)
        return self.returncode


_LONGEST = 1 << 16
"""Bytes of a request."""
_PARENTS: dict[tuple[str, ...], socket.socket] = {}
"""By interpreter, imports and variables, but for those that are set late."""


def start(
    imports: Sequence[str],
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    stdout: IO[bytes],
    pass_fds: tuple[int, int],
    **_: object,
) -> ForkedProcess:
    """A contender in a session of its own, as `subprocess.Popen` would start it."""
    late = {name: env[name] for name in _LATE if name in env}
    early = {name: value for name, value in sorted(env.items()) if name not in late}
    key = (command[0], *imports, *(f"{name}={value}" for name, value in early.items()))
    if key not in _PARENTS:
        _PARENTS[key] = _start_parent(command[0], imports, early)
    request = json.dumps(late).encode()
    socket.send_fds(_PARENTS[key], [request], [*pass_fds, stdout.fileno()])
    return ForkedProcess(int(_PARENTS[key].recv(64)))


def _start_parent(python: str, imports: Sequence[str], env: Mapping[str, str]) -> socket.socket:
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    subreaper = 36  # PR_SET_CHILD_SUBREAPER of prctl(2): what it forks becomes our child
    ctypes.CDLL(None).prctl(subreaper, 1, 0, 0, 0)
    with theirs:
        process = subprocess.Popen(
            [python, "-P", "-s", "-m", __name__, str(theirs.fileno()), *imports],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=dict(env),
            pass_fds=(theirs.fileno(),),
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # the last one is called first
    return ours


def _serve(requests: socket.socket, imports: Sequence[str]) -> None:
    """Fork for each request, until the conductor ends."""
    from benchcore.cell.__main__ import main  # which imports this module, in a conductor

    importlib.import_module("benchcore.cell.contender")  # what every contender imports
    kept = set(sys.modules)
    gc.disable()
    for name in imports:
        importlib.import_module(name)
    _unload_workloads(kept)
    set_objects_aside()
    gc.enable()
    while True:
        request, fds, _, _ = socket.recv_fds(requests, _LONGEST, 3)
        if not request:
            return
        known, news = os.pipe()
        child = os.fork()
        if child == 0:
            requests.close()
            _fork(news, json.loads(request), fds, main)
        os.waitpid(child, 0)
        requests.send(os.read(known, 64))  # from now on it is the conductor's child
        for each in (*fds, known, news):
            os.close(each)


def _fork(
    news: int, late: Mapping[str, str], fds: Sequence[int], main: Callable[[list[str]], int]
) -> None:
    """Start a contender and end, so that the conductor becomes its parent."""
    child, pid = os.getpid(), os.fork()
    if pid == 0:
        _become_contender(child, late, fds, main)
    os.write(news, str(pid).encode())
    os._exit(0)


def _unload_workloads(kept: Container[str]) -> None:
    """Let each contender import a workload's code again, as it may be patched in it."""
    from benchcore import workloads

    for name in [name for name in sys.modules if name.startswith(f"{workloads.__name__}.")]:
        if name not in kept:
            del sys.modules[name]
            workloads.__dict__.pop(name.rpartition(".")[2], None)


def _become_contender(
    parent: int,
    late: Mapping[str, str],
    fds: Sequence[int],
    main: Callable[[list[str]], int],
) -> None:
    """In a session of its own; `fds` are its two pipes and its log."""
    code = 1
    try:
        os.setsid()
        for number in (1, 2):
            os.dup2(fds[2], number)
        while os.getppid() == parent:  # it ends now
            time.sleep(_PAUSE_S)
        set_variables(late)
        code = main(["contender", *map(str, fds[:2])])
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])

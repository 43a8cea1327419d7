"""Forks processes that need a framework from one that has imported it; `forked_contenders.py`
starts it in the framework's own Python.

Usage: python -P -s framework_server.py SOCKET MODULE...

A client connects, sends a request (JSON) with its file descriptors, and reads the new process's id,
then its exit code. What was imported holds no device and no program.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn


def _load(path: Path) -> ModuleType:
    """A module by its path: nothing here is on the path of a framework's Python."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_FORKS = _load(Path(__file__).parents[1] / "tasks" / "unfair" / "planted_forks.py")
LONGEST = 1 << 17
"""Bytes of a request."""
_OWNER = 0
"""Stdin is a pipe of the tests: at its end there are none."""


def serve(listener: socket.socket, imports: Sequence[str]) -> None:
    """Fork for each request, until the tests end."""
    gc.disable()
    for name in imports:
        importlib.import_module(name)
    _FORKS.set_objects_aside()
    gc.enable()
    while True:
        ready, _, _ = select.select([listener, _OWNER], [], [])
        _reap()
        if _OWNER in ready:
            return
        connection, _ = listener.accept()
        request, fds, _, _ = socket.recv_fds(connection, LONGEST, 3)
        if request and os.fork() == 0:
            listener.close()
            _hold(connection, json.loads(request), fds)
        connection.close()
        for each in fds:
            os.close(each)


def _reap() -> None:
    """Take note of holders that have ended, and of their CPU time."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _hold(connection: socket.socket, request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Be the parent of a new process: report its end, and let it end with the client."""
    leads, led = os.pipe()
    pid = os.fork()
    if pid == 0:
        connection.close()
        os.setsid()
        os.close(leads)
        os.close(led)
        _become(request, fds)
    for each in (*fds, led):
        os.close(each)
    os.read(leads, 1)  # it leads a group now, which may be stopped
    connection.send(str(pid).encode())
    ended = os.pidfd_open(pid)
    ready, _, _ = select.select([connection, ended], [], [])
    if ended not in ready:  # nobody will ask for its exit code
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """What the request asks for: a contender, whose descriptors are its
    two pipes and its log; or a script, with those of its output."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(fds[-1], 2)
        os.dup2(fds[0] if "script" in request else fds[-1], 1)
        os.sched_setaffinity(0, request["cpus"])
        _set_environment(request["env"])
        code = _run_script(request) if "script" in request else _contend(fds)
    except BaseException:  # noqa: BLE001 - whatever ends it
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)


def _set_environment(variables: dict[str, str]) -> None:
    """All of them: a framework reads some after its import only."""
    os.environ.clear()
    _FORKS.set_variables(variables)
    sys.path[:0] = [each for each in variables.get("PYTHONPATH", "").split(os.pathsep) if each]


def _contend(fds: list[int]) -> int:
    from benchcore.cell.__main__ import main

    return main(["contender", *map(str, fds[:2])])


def _run_script(request: dict[str, Any]) -> int:
    """As `python -c` does."""
    sys.argv = ["-c", *request["arguments"]]
    os.chdir(request["cwd"])
    try:
        exec(compile(request["script"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])

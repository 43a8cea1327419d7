"""Forks processes that need a framework from one that has imported it; `framework_servers.py`
starts it in the framework's own Python.

Usage: python -P -s framework_server.py SOCKET MODULE...

A client connects, sends a request (JSON) with its file descriptors, and reads the new process's id,
then its exit code. What was imported holds no device and no program.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

LONGEST = 1 << 17
"""Bytes of a request."""
_OWNER = 0
"""Stdin is a pipe of the owner: at its end there is none."""


def serve(listener: socket.socket, imports: Sequence[str]) -> None:
    """Fork for each request, until the owner ends."""
    gc.disable()
    for name in imports:
        with suppress(Exception):  # who needs it reports that it can't be imported
            importlib.import_module(name)
    _set_objects_aside()
    gc.enable()
    while True:
        ready, _, _ = select.select([listener, _OWNER], [], [])
        _reap()
        if _OWNER in ready:
            return
        connection, _ = listener.accept()
        request, fds, _, _ = socket.recv_fds(connection, LONGEST, 4)
        if request and os.fork() == 0:
            listener.close()
            _hold(connection, json.loads(request), fds)
        connection.close()
        for each in fds:
            os.close(each)


def _set_objects_aside() -> None:
    """Contenders look through all objects several times: let each see its own alone. Their guards
    count no object as set aside but those that a contender adds."""
    gc.collect()
    gc.freeze()
    count, shared = gc.get_freeze_count, gc.get_freeze_count()
    gc.get_freeze_count = lambda: max(0, count() - shared)  # some are freed


def _reap() -> None:
    """Take note of holders that have ended, and of their CPU time."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _hold(connection: socket.socket, request: Mapping[str, Any], fds: Sequence[int]) -> NoReturn:
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


def _become(request: Mapping[str, Any], fds: Sequence[int]) -> NoReturn:
    """Run a script as `python -c` does. Its output goes to the last two descriptors; the numbers of
    the others follow its arguments."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(fds[-2], 1)
        os.dup2(fds[-1], 2)
        os.sched_setaffinity(0, request["cpus"])
        _set_variables(request["env"])
        sys.argv = ["-c", *request["arguments"], *map(str, fds[:-2])]
        os.chdir(request["cwd"])
        exec(compile(request["script"], "<string>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - whatever ends it
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)


def _set_variables(variables: Mapping[str, str]) -> None:
    """All of them: a framework reads some after its import only, and JAX has read that of its
    cache."""
    os.environ.clear()
    os.environ.update(variables)
    if (jax := sys.modules.get("jax")) and "JAX_COMPILATION_CACHE_DIR" in variables:
        jax.config.update("jax_compilation_cache_dir", variables["JAX_COMPILATION_CACHE_DIR"])
    sys.path[:0] = [each for each in variables.get("PYTHONPATH", "").split(os.pathsep) if each]


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
    os._exit(0)  # to take a framework down takes CPU time, and JAX's then names what it leaked

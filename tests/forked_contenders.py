"""Scripts that are forked from one import of a framework per test run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tasks.unfair.framework_servers import FrameworkServers

_EARLY = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "OMP_NUM_THREADS", "OMP_WAIT_POLICY"),
    "TORCHINDUCTOR_COMPILE_THREADS",
)
"""Variables of ours that matter while a framework is imported for scripts."""


def run_script(
    servers: FrameworkServers,
    python: str | Path,
    imports: Sequence[str],
    script: str,
    *arguments: str,
    **late: str,
) -> subprocess.CompletedProcess[str]:
    """What `python -P -s -c SCRIPT ARGUMENTS...` does, with these variables beside ours, forked
    from a process that has imported these modules."""
    early = {name: os.environ[name] for name in _EARLY if name in os.environ}
    server = servers.find(python=str(python), imports=[*imports], env=early)
    cpus = sorted(os.sched_getaffinity(0))
    request = {"script": script, "arguments": arguments, "cwd": str(Path.cwd()), "cpus": cpus}
    request["env"] = {**os.environ, **late}
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
    ):
        connection.connect(server)
        fds = [out.fileno(), err.fileno()]
        socket.send_fds(connection, [json.dumps(request).encode()], fds)
        connection.recv(64)  # its process id
        code = int(connection.recv(64) or -signal.SIGKILL)
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess([str(python)], code, out.read(), err.read())

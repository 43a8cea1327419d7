"""Conductors whose contenders are forked from one import per framework and test run, for tests that
look at what a duel shows and not at how its processes start: most of a tiny duel's CPU time are
imports."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("framework_server.py")
_START = "        process = subprocess.Popen(\n            [*command, role,"
_FORK = """        process = _start(
            role, [*command, role,"""
_IS_CHILD = "leader = os.waitid(os.P_PID, self.pid, waiting) is not None"
_CLIENT = '''

_LATE = (
    "JAX_COMPILATION_CACHE_DIR",
    "PYTHONPATH",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "XLA_FLAGS",
)
"""Variables that a framework reads after its import, or that its configuration has by a name."""


class _Forked:
    """What the harness uses of a `subprocess.Popen`, of a process that a server forked."""

    def __init__(self, connection, pid):
        self._connection, self.pid, self.returncode = connection, pid, None

    def wait(self, timeout=None):
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                ended = self._connection.recv(64)
            except TimeoutError:
                raise subprocess.TimeoutExpired(str(self.pid), timeout) from None
            self._connection.close()
            self.returncode = int(ended or -signal.SIGKILL)
        return self.returncode


def _start(role, command, *, env, stdout, pass_fds, **options):
    """Fork a contender of a framework; start anything else."""
    import json, socket, sys

    order = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    sides = [
        each
        for each in order.get("contenders", ())
        if each["environment"] and each["environment"]["python"] == command[0]
    ]
    framework = sides[0]["framework"] if sides else "stdlib"
    if role != "contender" or framework == "stdlib":
        return subprocess.Popen(command, env=env, stdout=stdout, pass_fds=pass_fds, **options)
    compiles = any(each["settings"].get("compile", "none") != "none" for each in sides)
    case = str(order.get("case", order.get("use_cases")))
    imports = [framework]
    if framework == "torch" and (compiles or "train" in case):
        imports.append("torch._dynamo")
    if framework == "torch" and case[-3:-1] == "_x":  # on several devices
        imports += ["torch.distributed.fsdp", "torch.distributed.tensor.parallel"]
    code = Path(__file__).parents[2] / "workloads" / order["workload"] / "in_jax.py"
    if framework == "jax" and code.exists() and "import nnx" in code.read_text():
        imports += ["optax", "flax.nnx"]
    early = {name: value for name, value in env.items() if name not in _LATE}
    wanted = {"python": command[0], "imports": imports, "env": early}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(ADDRESS)
        asking.send(json.dumps(wanted).encode())
        server, _, failure = asking.recv(4096).decode().partition("|")
    if failure:
        raise OSError(failure)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(server)
    request = {"env": env, "cpus": sorted(os.sched_getaffinity(0))}
    sent = [*pass_fds, stdout.fileno()]
    socket.send_fds(connection, [json.dumps(request).encode()], sent)
    return _Forked(connection, int(connection.recv(64)))
'''


_EARLY = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "OMP_NUM_THREADS", "OMP_WAIT_POLICY")
"""Variables of ours that matter while a framework is imported for scripts."""
_MOST = 4
"""Servers at a time, the last ones that were asked for: each holds a framework in memory."""


_START_MEMBER = """    process = subprocess.Popen(
        [*command, str(orders_in), str(answers_out)], pass_fds=(orders_in, answers_out)
    )
"""
_FORK_MEMBER = """    process = _fork_member((orders_in, answers_out))
"""
_MEMBER = '''

def _fork_member(pipes):
    """In the leader's process group, before that has a thread or a device."""
    import contextlib, traceback
    from types import SimpleNamespace

    from benchcore.cell.processes.lifetime import die_with_parent, end_at_once

    if pid := os.fork():
        return SimpleNamespace(pid=pid)
    code = 1
    try:
        die_with_parent()
        sys.argv = ["member", "member"]
        for each in map(int, os.listdir("/proc/self/fd")):
            if each > 2 and each not in pipes:
                with contextlib.suppress(OSError):  # that of the listing
                    os.close(each)
        follow_leader(Channel(*pipes))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        end_at_once(code)
'''


class FrameworkServers:
    """A process per interpreter, imports and variables; conductors ask for theirs at `address`."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "ask")
        self._folder = folder
        self._numbers = itertools.count()
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        self._lock = threading.Lock()
        self._asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asked.bind(self.address)
        self._asked.listen()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        while True:
            connection, _ = self._asked.accept()
            with connection:
                wanted = connection.recv(1 << 17)
                if not wanted:
                    return
                try:
                    answer = self._find(**json.loads(wanted))
                except OSError as error:
                    answer = f"|{error}"
                connection.send(answer.encode())

    def _find(self, **wanted: Any) -> str:
        """Where the server listens that has imported this."""
        key = json.dumps(wanted, sort_keys=True)
        with self._lock:
            found = self._running.pop(key, None)
            if found is None:
                path = str(self._folder / str(next(self._numbers)))
                found = path, _start_server(path, **wanted)
            self._running[key] = found  # the last one now
            while len(self._running) > _MOST:
                _end_server(self._running.pop(next(iter(self._running)))[1])
        return found[0]

    def run(
        self, python: str | Path, imports: Sequence[str], script: str, *arguments: str, **late: str
    ) -> subprocess.CompletedProcess[str]:
        """What `python -P -s -c SCRIPT ARGUMENTS...` does, with these variables beside ours, forked
        from a process that has imported these modules."""
        early = {name: os.environ[name] for name in _EARLY if name in os.environ}
        server = self._find(python=str(python), imports=[*imports], env=early)
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

    def end(self) -> None:
        """End them all."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:
            last.connect(self.address)
        self._thread.join()
        self._asked.close()
        for _, process in self._running.values():
            _end_server(process)


def _end_server(process: subprocess.Popen[bytes]) -> None:
    """What it forked goes on."""
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def _start_server(
    path: str, *, python: str, imports: Sequence[str], env: dict[str, str]
) -> subprocess.Popen[bytes]:
    """It listens from now on, and answers once it has imported everything."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        return subprocess.Popen(
            [python, "-P", "-s", str(SERVER), str(listener.fileno()), *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=env,
            pass_fds=(listener.fileno(),),
        )


@contextmanager
def serve_frameworks() -> Iterator[FrameworkServers]:
    """Servers that end with the body."""
    with tempfile.TemporaryDirectory(prefix="forks-") as folder:
        servers = FrameworkServers(Path(folder))
        yield servers
        servers.end()


def fork_contenders(ring: Path, servers: FrameworkServers) -> None:
    """Change a copy of the measured layer."""
    client = f"{_CLIENT}\n\nADDRESS = {servers.address!r}\n"
    alive = (_IS_CHILD, "leader = _is_stopped(self.pid)")
    _edit(ring / "benchcore/cell/processes/process.py", client, (_START, _FORK), alive)
    _edit(ring / "benchcore/cell/processes/group.py", _MEMBER, (_START_MEMBER, _FORK_MEMBER))


def _edit(file: Path, added: str, *changes: tuple[str, str]) -> None:
    text = file.read_text(encoding="utf-8")
    for part, instead in changes:
        assert text.count(part) == 1, f"{file.name} has changed"
        text = text.replace(part, instead)
    file.write_text(text + added, encoding="utf-8")

"""Conductors whose contenders are forked from one import per framework, for unfair sides and tests:
they look at what a duel shows and not at how its processes start, and most of a tiny duel's CPU
time are imports."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("framework_server.py")
_START = "        process = subprocess.Popen(\n            [*command, role,"
_FORK = """        process = _start(
            role, [*command, role,"""
_FLAGS = "*workaround.flags"
_LEVEL = "--xla_backend_optimization_level=1"
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


_CONTEND = """
import sys
from benchcore.cell.__main__ import main

sys.exit(main(["contender", *sys.argv[1:]]))
"""


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
    wanted = {"python": command[0], "imports": _list_imports(framework, order, sides)}
    wanted["env"] = {name: value for name, value in env.items() if name not in _LATE}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(ADDRESS)
        asking.send(json.dumps(wanted).encode())
        server, _, failure = asking.recv(4096).decode().partition("|")
    if failure:
        raise OSError(failure)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(server)
    request = {"script": _CONTEND, "arguments": [], "cwd": os.getcwd(), "env": env}
    request["cpus"] = sorted(os.sched_getaffinity(0))
    sent = [*pass_fds, stdout.fileno(), stdout.fileno()]
    socket.send_fds(connection, [json.dumps(request).encode()], sent)
    return _Forked(connection, int(connection.recv(64)))


def _list_imports(framework, order, sides):
    """What contenders of a framework import in any case. Few lists serve all, a process each."""
    if framework == "jax":
        return ["jax", "optax", "flax.nnx"]
    code = Path(__file__).parents[2] / "workloads" / order["workload"] / "in_torch.py"
    case = str(order.get("case", order.get("use_cases")))
    compiles = any(each["settings"].get("compile", "none") != "none" for each in sides)
    imports = ["torch"]
    if compiles or "train" in case:
        imports += ["torch._dynamo", "torchvision"]
    elif code.exists() and "import in_torch as vision" in code.read_text():
        imports += ["torchvision"]
    if compiles:  # the first compilation imports it, for over a second
        imports.append("torch._inductor.compile_fx")
    if case[-3:-1] == "_x":  # on several devices
        imports += ["torch.distributed.fsdp", "torch.distributed.tensor.parallel"]
    return imports
'''


_MOST = 5
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
                    answer = self.find(**json.loads(wanted))
                except OSError as error:
                    answer = f"|{error}"
                connection.send(answer.encode())

    def find(self, **wanted: Any) -> str:
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
        try:
            yield servers
        finally:
            servers.end()


def fork_contenders(ring: Path, servers: FrameworkServers) -> None:
    """Change a copy of the measured layer."""
    cell = ring / "benchcore" / "cell"
    client = f"{_CLIENT}\n\nADDRESS = {servers.address!r}\n"
    forked = {_START: _FORK, _IS_CHILD: "leader = _is_stopped(self.pid)"}
    replace_texts(cell / "processes" / "process.py", forked, client)
    replace_texts(cell / "processes" / "group.py", {_START_MEMBER: _FORK_MEMBER}, _MEMBER)


def compile_briefly(ring: Path) -> None:
    """Let XLA optimise less in a copy of the measured layer: tiny programs then take least CPU time
    in all. For those that look at no time."""
    replace_texts(
        ring / "benchcore" / "cell" / "processes" / "launch.py",
        {_FLAGS: f'{_FLAGS}, "{_LEVEL}"'},
    )


def replace_texts(path: Path, changes: Mapping[str, str], more: str = "") -> None:
    """Rewrite a file of a measured layer: replace texts that each occur once, and add `more`."""
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert text.count(old) == 1, f"{path.name} has changed"
        text = text.replace(old, new)
    path.unlink()  # a snapshot is read-only
    path.write_text(text + more, encoding="utf-8")

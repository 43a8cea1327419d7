"""A real Slurm on this machine only, with simulated GPUs, for tests and demos.

    python deployments/slurm-local/slurm_local.py install   # as root, Debian or Ubuntu
    python deployments/slurm-local/slurm_local.py start --nodes 2 --gpus 2
    eval "$(python deployments/slurm-local/slurm_local.py env)"   # now sbatch and squeue find it
    python deployments/slurm-local/slurm_local.py stop

Everything is in one folder, listens on 127.0.0.1 only, and runs as the user who starts it. A daemon
is found by the SLURM_CONF in its environment, so there is no pid file that could be wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_HERE = Path(__file__).parent
_DAEMONS = ("slurmd", "slurmstepd", "slurmctld", "slurmdbd", "mariadbd", "munged")
"""In the order in which they are stopped."""
_NEEDED = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch")
_PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge"),
    *("slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server"),
)
_POLICY = Path("/usr/sbin/policy-rc.d")
_CPUS, _MEMORY_MB = 8, 4096
_USER = pwd.getpwuid(os.geteuid()).pw_name
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class ClusterError(Exception):
    """One paragraph: what was wanted, what came, what to do."""


@dataclass(frozen=True)
class Shape:
    """What a running cluster looks like; another shape needs a restart."""

    nodes: int
    gpus: int
    gpu_type: str


@dataclass(frozen=True)
class Cluster:
    """A cluster's folder. Raises ClusterError for a path that Slurm could not use."""

    folder: Path

    def __post_init__(self) -> None:
        # Unix sockets have paths of 107 characters at most, and slurm.conf knows no quotes.
        if not re.fullmatch(r"/[A-Za-z0-9_./-]{1,79}", str(self.folder)):
            raise ClusterError(
                f"wanted an absolute folder of at most 80 letters, digits, '_', '.', '/' and '-', "
                f"got {str(self.folder)!r}; name another with --folder"
            )

    @property
    def conf(self) -> Path:
        """slurm.conf, all that a client of Slurm needs."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def shape(self) -> Path:
        """The shape of the last start."""
        return self.folder / "etc" / "shape.json"

    @property
    def environment(self) -> dict[str, str]:
        """For daemons and clients. MYSQL_UNIX_PORT: slurmdbd has no setting for a socket."""
        return {
            "PATH": _PATH,
            "SLURM_CONF": str(self.conf),
            "MYSQL_UNIX_PORT": str(self.folder / "run" / "mariadb.socket"),
        }

    def query(self, *command: str, seconds: float = 20) -> str | None:
        """Stdout of a client, or None if it failed."""
        try:
            done = subprocess.run(
                command, env=self.environment, capture_output=True, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    def find_daemons(self) -> dict[int, tuple[str, str]]:
        """Program and command line of each daemon of this cluster, by process id."""
        mark, found = f"SLURM_CONF={self.conf}".encode(), {}
        for entry in Path("/proc").glob("[0-9]*"):
            # A process may end during the check, or belong to another user.
            with contextlib.suppress(OSError):
                program = (entry / "comm").read_text().strip()
                if program in _DAEMONS and mark in (entry / "environ").read_bytes().split(b"\0"):
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(entry.name)] = (program, line.strip())
        return found

    def list_programs(self) -> set[str]:
        """Which daemons run."""
        return {program for program, _ in self.find_daemons().values()}

    def count_nodes_up(self) -> int:
        """Nodes that could run a job now or when their jobs end."""
        if "slurmctld" not in self.list_programs():  # sinfo would wait for it
            return 0
        states = (self.query("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T") or "").split()
        return sum(state in {"idle", "mixed", "allocated", "completing"} for state in states)


def install() -> None:
    """Install what is missing. The packages start no daemons of their own."""
    if not _list_missing():
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ClusterError(
            f"wanted {', '.join(_list_missing())}, but installing needs apt-get and root; install "
            f"{' '.join(_PACKAGES)} by hand"
        )
    with _no_services():
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (("update",), ("install", "-y", "--no-install-recommends", *_PACKAGES)):
            called = ["apt-get", "-q", *command]
            done = subprocess.run(called, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise ClusterError(
                    f"`apt-get {' '.join(command)}` ended with {done.returncode}: "
                    f"{done.stderr.strip()[-500:]}; fix it and install again"
                )


def start(cluster: Cluster, shape: Shape) -> str:
    """Bring the cluster up in this shape; what there was to do. Stops it again if that fails."""
    if missing := _list_missing():
        action = f"run `python {_HERE / 'slurm_local.py'} install` as root"
        raise ClusterError(f"wanted Slurm, but there is no {', no '.join(missing)}; {action}")
    if is_up(cluster, shape):
        return "up already"
    begun = time.monotonic()
    stop(cluster)
    _write_files(cluster, shape)
    try:
        _start_daemons(cluster, shape)
    except ClusterError:
        stop(cluster)
        raise
    return f"up in {time.monotonic() - begun:.1f} s"


def stop(cluster: Cluster) -> str:
    """Cancel the jobs and end the daemons; what there was to do."""
    if not cluster.list_programs():
        return "down already"
    jobs = ("squeue", "-h", "-t", "R,CG")
    if "slurmctld" in cluster.list_programs() and cluster.query("scancel", "-u", _USER) is not None:
        with contextlib.suppress(ClusterError):
            _wait("jobs to end", lambda: not cluster.query(*jobs), seconds=10)
    for program in _DAEMONS:
        _end(cluster, program)
    return "stopped"


def is_up(cluster: Cluster, shape: Shape) -> bool:
    """Whether the cluster has this shape and every node of it answers."""
    with contextlib.suppress(FileNotFoundError):
        same = json.loads(cluster.shape.read_text()) == asdict(shape)
        return same and cluster.count_nodes_up() == shape.nodes
    return False


def describe(cluster: Cluster) -> str:
    """One line per daemon and node."""
    daemons = sorted(cluster.find_daemons().items())
    lines = [f"{program:<10} {pid:>8}  {line[:90]}" for pid, (program, line) in daemons]
    nodes = cluster.query("sinfo", "-N", "-p", "gpu", "-o", "%N %T %c %m %G %E") if lines else None
    return "\n".join([*(lines or ["no daemon runs"]), nodes or "slurmctld does not answer"])


def _list_missing() -> list[str]:
    return [program for program in _NEEDED if shutil.which(program, path=_PATH) is None]


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Keep Debian's packages from starting the daemons that they install."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


def _write_files(cluster: Cluster, shape: Shape) -> None:
    folder = cluster.folder
    for name in ("etc", "log", "run", "controller", "nodes", "munge"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "munge").chmod(0o755)  # munged refuses a socket that others can't reach
    key = folder / "munge" / "key"
    if not key.exists():
        _write(key, secrets.token_bytes(128))
    ports = _find_ports(shape.nodes + 2)
    values = {
        "folder": str(folder),
        "user": _USER,
        "controller_port": ports[0],
        "accounting_port": ports[1],
        "nodes": "\n".join(
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={_CPUS} "
            f"RealMemory={_MEMORY_MB}"
            + (f" Gres=gpu:{shape.gpu_type}:{shape.gpus}" if shape.gpus else "")
            for name, port in zip(_name_nodes(shape), ports[2:], strict=True)
        ),
    }
    for name in ("slurm.conf", "slurmdbd.conf"):
        template = string.Template((_HERE / f"{name}.template").read_text())
        _write(folder / "etc" / name, template.substitute(values).encode())
    _write(folder / "etc" / "gres.conf", _write_gres(folder, shape).encode())
    # Without it Slurm wants a cgroup file system, which a container may lack.
    _write(folder / "etc" / "cgroup.conf", b"CgroupAutomount=no\nConstrainDevices=no\n")
    _write(cluster.shape, json.dumps(asdict(shape)).encode())


def _write_gres(folder: Path, shape: Shape) -> str:
    """A GPU is a link to /dev/null: Slurm wants a character device, and numbers it by its name."""
    lines = []
    for name in _name_nodes(shape):
        devices = folder / "nodes" / f"{name}-devices"
        devices.mkdir(exist_ok=True)
        for number in range(shape.gpus):
            link = devices / f"gpu{number}"
            if not link.is_symlink():
                link.symlink_to("/dev/null")
            lines.append(f"NodeName={name} Name=gpu Type={shape.gpu_type} File={link}\n")
    return "".join(lines)


def _write(path: Path, content: bytes) -> None:
    """Readable by its owner alone: slurmdbd and munged refuse to start otherwise."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(content)


def _name_nodes(shape: Shape) -> list[str]:
    return [f"node{number:02d}" for number in range(1, shape.nodes + 1)]


def _find_ports(count: int) -> list[int]:
    """Free ports of 127.0.0.1."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _start_daemons(cluster: Cluster, shape: Shape) -> None:
    folder = cluster.folder
    munge, run = folder / "munge", folder / "run"
    command = ["munged", "--foreground", "--force", f"--socket={munge / 'socket'}"]
    command += [f"--key-file={munge / 'key'}", f"--seed-file={munge / 'seed'}"]
    command += [f"--pid-file={run / 'munged.pid'}", f"--log-file={folder / 'log' / 'munge.log'}"]
    answers = ("munge", "-n", "-S", str(munge / "socket"))
    _launch(cluster, "munged", command, lambda: cluster.query(*answers) is not None)

    data, socket_option = folder / "database", f"--socket={run / 'mariadb.socket'}"
    if not (data / "mysql").exists():
        made = ["mariadb-install-db", "--no-defaults", f"--user={_USER}", f"--datadir={data}"]
        made += ["--auth-root-authentication-method=socket", f"--auth-root-socket-user={_USER}"]
        if cluster.query(*made, "--skip-test-db", "--skip-name-resolve", seconds=120) is None:
            shutil.rmtree(data, ignore_errors=True)
            raise ClusterError(f"`{' '.join(made)}` failed; run it by hand to see why")
    command = ["mariadbd", "--no-defaults", f"--user={_USER}", f"--datadir={data}", socket_option]
    command += ["--skip-networking", "--innodb-flush-log-at-trx-commit=0"]
    command += ["--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"]
    command += [f"--pid-file={run / 'mariadbd.pid'}"]
    ping = ("mariadb-admin", "--no-defaults", socket_option, "ping")
    _launch(cluster, "mariadbd", command, lambda: cluster.query(*ping) is not None)

    clusters = ("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster")
    _launch(cluster, "slurmdbd", ["slurmdbd", "-D"], lambda: cluster.query(*clusters) is not None)
    if "deadheat" not in (cluster.query(*clusters) or "").split():
        cluster.query("sacctmgr", "-i", "add", "cluster", "deadheat")
    _launch(
        cluster,
        "slurmctld",
        ["slurmctld", "-D", "-f", str(cluster.conf)],
        lambda: "UP" in (cluster.query("scontrol", "ping") or ""),
    )
    for name in _name_nodes(shape):
        (folder / "nodes" / name).mkdir(exist_ok=True)
        _launch(cluster, "slurmd", ["slurmd", "-D", "-N", name, "-f", str(cluster.conf)], None)
    _wait(f"nodes (logs: {folder / 'log'})", lambda: cluster.count_nodes_up() == shape.nodes)


def _launch(
    cluster: Cluster, program: str, command: Sequence[str], answers: Callable[[], bool] | None
) -> None:
    """Start a daemon in the foreground of a session of its own, and wait until it answers."""
    name = "-".join([program, *(part for part in command if part.startswith("node"))])
    path = cluster.folder / "log" / f"{name}.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            command,
            env=cluster.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def ready() -> bool:
        if process.poll() is not None:
            text = path.read_text(errors="replace").strip()[-500:]
            raise ClusterError(f"{program} ended with {process.returncode}: {text} (all: {path})")
        return answers is None or answers()

    _wait(f"{program} to answer (log: {path})", ready)


def _end(cluster: Cluster, program: str) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid, (name, _) in cluster.find_daemons().items():
            with contextlib.suppress(ProcessLookupError):
                if name == program:
                    os.kill(pid, number)
        with contextlib.suppress(ClusterError):
            _wait(f"{program} to end", lambda: program not in cluster.list_programs(), seconds=10)
            return


def _wait(what: str, happened: Callable[[], bool], *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {seconds:.0f} s for {what}, which did not happen")
        time.sleep(0.1)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    folder = Path(os.environ.get("DEADHEAT_STATE") or "state") / "slurm"
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=("install", "start", "stop", "status", "env"))
    parser.add_argument("--folder", type=Path, default=folder, help="default %(default)s")
    parser.add_argument("--nodes", type=int, choices=range(1, 17), default=2, metavar="1..16")
    parser.add_argument("--gpus", type=int, choices=range(9), default=2, metavar="0..8")
    parser.add_argument("--gpu-type", default="h100", help="what Slurm calls them")
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"[a-z0-9_]{1,30}", options.gpu_type):
        parser.error(f"wanted a GPU type of a-z, 0-9 and '_', got {options.gpu_type!r:.60}")
    return options


def main(arguments: Sequence[str]) -> int:
    """Exit codes: 0 success, 1 not running (status), 2 bad input or missing packages."""
    options = _parse(arguments)
    try:
        if options.what == "install":
            install()
            return 0
        cluster = Cluster(options.folder.expanduser().absolute())
        shape = Shape(options.nodes, options.gpus, options.gpu_type)
        if options.what == "env":
            print(f"export SLURM_CONF={cluster.conf}")
            return 0
        if options.what == "status":
            print(describe(cluster))
            return 0 if cluster.count_nodes_up() else 1
        cluster.folder.mkdir(parents=True, exist_ok=True)
        with (cluster.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            print(start(cluster, shape) if options.what == "start" else stop(cluster))
    except (ClusterError, OSError) as error:
        print(f"slurm_local: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

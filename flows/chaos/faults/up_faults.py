"""Faults of the services of `deadheat up`, while a night uses their Prefect server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from benchcore.errors import UserError
from flows.chaos.faults.fault import Fault, do_nothing
from flows.chaos.trial import MissedError, Trial
from flows.server import services
from flows.server.postgres import find_postgres
from flows.server.services import Service

_SERVICES = ("database", "server", "dashboard", "worker")
_OUTAGE_S = 12.0
_UP_S = 300.0


def _up(trial: Trial) -> None:
    """Bring all services up, until both runs of the command have ended."""
    if isinstance(reason := find_postgres(), str):
        raise MissedError(reason)
    trial.server = None
    with ExitStack() as ports:
        free = [ports.enter_context(socket.socket()) for _ in range(3)]
        for each in free:
            each.bind(("127.0.0.1", 0))
        numbers = [str(each.getsockname()[1]) for each in free]
    names = ("--port", "--dashboard-port", "--database-port")
    trial.options = tuple(text for pair in zip(names, numbers, strict=True) for text in pair)
    trial.until_end.callback(_call, trial, "down")
    _call(trial, "up", *trial.options, "--cron", "0 0 1 1 *")


def _call(trial: Trial, *words: str) -> None:
    done = subprocess.run(
        trial.deadheat(*words),
        env=trial.variables,
        capture_output=True,
        text=True,
        timeout=_UP_S,
        check=False,
    )
    if done.returncode:
        raise UserError(f"wanted `deadheat {words[0]}` to succeed, but {done.stderr[-1000:]}")


def _find(trial: Trial, name: str) -> Service:
    return Service(name=name, folder=trial.state.root / "up")


def _send(pids: Sequence[int], number: signal.Signals = signal.SIGKILL) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _kill(name: str) -> Callable[[Trial], None]:
    """Its supervisor starts it again."""
    return lambda trial: _send(services.find(_find(trial, name))[1:])


def _kill_supervised(name: str) -> Callable[[Trial], None]:
    """Kill a service and its supervisor, so that `deadheat up` must start both again."""

    def inject(trial: Trial) -> None:
        _send(services.find(_find(trial, name)))
        trial.until_rerun.callback(_call, trial, "up", *trial.options)

    return inject


def _stop(name: str) -> Callable[[Trial], None]:
    """Stop all its processes for a while, as a machine without memory does."""

    def inject(trial: Trial) -> None:
        pids = services.find(_find(trial, name))[1:]
        _send(pids, signal.SIGSTOP)
        try:
            with suppress(MissedError):
                trial.sleep(_OUTAGE_S)
        finally:
            _send(pids, signal.SIGCONT)

    return inject


def _reboot(trial: Trial) -> None:
    """All services and the night are gone; after the reboot somebody runs `deadheat up`."""
    pids = [pid for name in _SERVICES for pid in services.find(_find(trial, name))]
    _send(pids)
    trial.night.send_signal(signal.SIGKILL)
    trial.until_rerun.callback(_call, trial, "up", *trial.options)


def _down(trial: Trial) -> None:
    """Somebody stops all services; the next run of the command does without."""
    _call(trial, "down")


def _up_again(trial: Trial) -> None:
    _call(trial, "up", *trial.options)


def _fault(name: str, inject: Callable[[Trial], None] = do_nothing) -> Fault:
    return Fault(name=f"up: {name}", layers=("up",), prepare=_up, inject=inject)


UP_FAULTS = (
    _fault("server: SIGKILL", _kill("server")),
    _fault("server and its supervisor: SIGKILL", _kill_supervised("server")),
    _fault("server: stopped for a while", _stop("server")),
    _fault("database: SIGKILL", _kill("database")),
    _fault("database and its supervisor: SIGKILL", _kill_supervised("database")),
    _fault("database: stopped for a while", _stop("database")),
    _fault("worker: SIGKILL", _kill("worker")),
    _fault("dashboard: SIGKILL", _kill("dashboard")),
    _fault("machine rebooted", _reboot),
    _fault("deadheat down in the middle", _down),
    _fault("deadheat up in the middle", _up_again),
)

"""Faults of the Prefect server: of a command's own temporary one, and of one that others run."""

from __future__ import annotations

import secrets
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from flows.chaos.faults.fault import Fault, signal_processes
from flows.chaos.proxy import Proxy, ServerFailure
from flows.chaos.trial import MissedError, Trial
from flows.server import watchdog

_SERVER = "prefect.server.api.server:create_app"
_OUTAGE_S = 12.0


def _hit_early(word: str) -> Callable[[Trial], None]:
    """While the server starts, before the night has begun."""

    def inject(trial: Trial) -> None:
        process = trial.find(word)
        trial.sleep(trial.random.uniform(0, 3))
        process.send(signal.SIGKILL)

    return inject


def _suspend_server(trial: Trial) -> None:
    process = trial.find(_SERVER)
    process.send(signal.SIGSTOP)
    time.sleep(_OUTAGE_S)
    process.send(signal.SIGCONT)


def _find_database(trial: Trial) -> Path:
    path = trial.state.root / "prefect" / "prefect.db"
    if not path.exists():
        raise MissedError("the server has no database yet")
    return path


def _lock_database(trial: Trial) -> None:
    """Another program writes to the server's database for a while."""
    with closing(sqlite3.connect(_find_database(trial), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        time.sleep(_OUTAGE_S)
        other.execute("ROLLBACK")


def _damage_database(trial: Trial) -> None:
    path = _find_database(trial)
    path.write_bytes(path.read_bytes()[:1000] + secrets.token_bytes(50_000))


def use_proxy(trial: Trial) -> None:
    """Use the server of all trials, through a proxy."""
    assert trial.server is not None, "the runner of the layer started one"
    proxy = Proxy(trial.server.port)
    trial.until_rerun.callback(proxy.close)
    trial.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{proxy.port}/api"
    trial.proxy = proxy


def fail(failure: ServerFailure, seconds: float = _OUTAGE_S) -> Callable[[Trial], None]:
    """Let the server of a night behind a proxy fail."""

    def inject(trial: Trial) -> None:
        assert trial.proxy is not None, "it was prepared"
        trial.proxy.fail(failure)
        with suppress(MissedError):  # it ends, as it may in a long outage
            trial.sleep(seconds)
        trial.proxy.fail(None)

    return inject


def _wrong_password(trial: Trial) -> None:
    trial.environ["PREFECT_API_AUTH_STRING"] = "deadheat:wrong"


def _no_server(trial: Trial) -> None:
    trial.environ["PREFECT_API_URL"] = "http://127.0.0.1:9/api"


def _outage(name: str, failure: ServerFailure, **options: float) -> Fault:
    inject = fail(failure, **options)
    return Fault(name=name, layers=("command",), prepare=use_proxy, inject=inject)


def _use_own_server(trial: Trial) -> None:
    trial.server = None


def _of_own(name: str, inject: Callable[[Trial], None]) -> Fault:
    return Fault(
        name=f"own server: {name}", layers=("command",), prepare=_use_own_server, inject=inject
    )


SERVER_FAULTS = (
    _of_own("SIGKILL", signal_processes(_SERVER)),
    _of_own("SIGTERM", signal_processes(_SERVER, number=signal.SIGTERM)),
    _of_own("SIGKILL while it starts", _hit_early(_SERVER)),
    _of_own("watchdog: SIGKILL", signal_processes(watchdog.__file__)),
    _of_own("watchdog: SIGKILL while it starts", _hit_early(watchdog.__file__)),
    _of_own("watchdog and server: SIGKILL", signal_processes(watchdog.__file__, _SERVER)),
    _of_own("stopped for a while", _suspend_server),
    _of_own("database locked for a while", _lock_database),
    _of_own("database damaged", _damage_database),
    _outage("server: answers 500 for a while", "500"),
    _outage("server: answers 502 for a while", "502"),
    _outage("server: answers 503 for a while", "503"),
    _outage("server: answers 504 for a while", "504"),
    _outage("server: refuses for a while", "refused"),
    _outage("server: is silent for a while", "silent"),
    _outage("server: refuses for good", "refused", seconds=600),
    Fault(name="server: not there", layers=("command",), prepare=_no_server),
    Fault(name="server: other password", layers=("command",), prepare=_wrong_password),
)

"""Faults of a PostgreSQL that holds the results, each trial's own. Where it is not installed, they
can't happen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from flows.chaos.faults.fault import Fault
from flows.chaos.own_postgres import OwnPostgres
from flows.chaos.trial import MissedError, Trial
from flows.server.postgres import find_postgres

_OUTAGE_S = 5.0
_AGAIN_S = 0.2


def _use(trial: Trial) -> None:
    """Let both runs of the command store their results there."""
    installed = find_postgres()
    if isinstance(installed, str):
        raise MissedError(installed)
    trial.postgres = OwnPostgres(trial.folder, installed)
    trial.until_end.callback(trial.postgres.stop)
    trial.postgres.start()


def _find(trial: Trial) -> OwnPostgres:
    assert trial.postgres is not None, "it was prepared"
    return trial.postgres


def _kill(trial: Trial) -> None:
    """Kill the server. Its supervisor starts it again, and it recovers."""
    server = _find(trial)
    server.kill()
    trial.until_rerun.callback(server.wait)


def _stop_until_rerun(trial: Trial) -> None:
    server = _find(trial)
    server.stop()
    trial.until_rerun.callback(server.start)


def _restart(trial: Trial) -> None:
    server = _find(trial)
    server.stop()
    with suppress(MissedError):  # the night ends without it
        trial.sleep(_OUTAGE_S)
    server.start()


def _end_connections(trial: Trial) -> None:
    """End all connections over and over until the night ends."""
    with suppress(MissedError):
        while True:
            _find(trial).end_connections()
            trial.sleep(_AGAIN_S)


def _never_there(trial: Trial) -> None:
    _use(trial)
    _stop_until_rerun(trial)


def _fault(name: str, inject: Callable[[Trial], None]) -> Fault:
    return Fault(name=f"PostgreSQL: {name}", prepare=_use, inject=inject)


POSTGRES_FAULTS = (
    _fault("SIGKILL", _kill),
    _fault("stopped in the middle", _stop_until_rerun),
    _fault("restarted in the middle", _restart),
    _fault("connections ended again and again", _end_connections),
    Fault(name="PostgreSQL: not there", prepare=_never_there),
)

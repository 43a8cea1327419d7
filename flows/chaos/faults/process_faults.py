"""Faults of processes: each process of a night is killed, stopped or continued from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from flows.chaos.faults.fault import Fault, signal_processes
from flows.chaos.processes import list_processes
from flows.chaos.trial import Trial

_STORM_S = 1.0


def _signal_night(number: signal.Signals) -> Callable[[Trial], None]:
    return lambda trial: trial.night.send_signal(number)


def _signal_group(number: signal.Signals) -> Callable[[Trial], None]:
    """Signal the whole group, as a terminal does for Ctrl-C or when it is closed."""
    return lambda trial: os.killpg(trial.night.pid, number)


def _continue_repeatedly(trial: Trial) -> None:
    """Continue every contender over and over, as Slurm's gang scheduling or a user's shell may."""
    end = time.monotonic() + _STORM_S
    while time.monotonic() < end and trial.night.poll() is None:
        trial.find("contender").send(signal.SIGCONT)


def _suspend_night(trial: Trial) -> None:
    trial.night.send_signal(signal.SIGSTOP)
    time.sleep(trial.random.uniform(0.2, 2))
    trial.night.send_signal(signal.SIGCONT)


def _suspend_all(trial: Trial) -> None:
    """Suspend and resume every process of the job, as Slurm does."""
    trial.find("contender")
    trial.night.send_signal(signal.SIGSTOP)
    found = [*list_processes(trial.state.root)]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for each in found:
            each.send(number)
        time.sleep(trial.random.uniform(0.2, 2))
    trial.night.send_signal(signal.SIGCONT)


def _kill_both(trial: Trial) -> None:
    """The kernel kills what uses most, and the conductor with it."""
    trial.find("contender").send(signal.SIGKILL)
    trial.find("conductor").send(signal.SIGKILL)


def _kill_everything(trial: Trial) -> None:
    """A node loses its power."""
    conductor = trial.find("conductor")
    trial.night.send_signal(signal.SIGKILL)
    conductor.send(signal.SIGKILL)


PROCESS_FAULTS = (
    Fault(name="contender: SIGKILL", inject=signal_processes("contender", number=signal.SIGKILL)),
    Fault(name="contender: SIGTERM", inject=signal_processes("contender", number=signal.SIGTERM)),
    Fault(name="contender: SIGSEGV", inject=signal_processes("contender", number=signal.SIGSEGV)),
    Fault(name="contender: SIGSTOP", inject=signal_processes("contender", number=signal.SIGSTOP)),
    Fault(name="contender: SIGCONT storm", inject=_continue_repeatedly),
    Fault(name="conductor: SIGKILL", inject=signal_processes("conductor", number=signal.SIGKILL)),
    Fault(name="conductor: SIGTERM", inject=signal_processes("conductor", number=signal.SIGTERM)),
    Fault(
        name="conductor: SIGSTOP",
        inject=signal_processes("conductor", number=signal.SIGSTOP),
        slow=True,
    ),
    Fault(name="contender and conductor: SIGKILL", inject=_kill_both),
    Fault(name="night: SIGINT", inject=_signal_night(signal.SIGINT)),
    Fault(name="night: SIGTERM", inject=_signal_night(signal.SIGTERM)),
    Fault(name="night: SIGHUP", inject=_signal_night(signal.SIGHUP)),
    Fault(name="night: SIGQUIT", inject=_signal_night(signal.SIGQUIT)),
    Fault(name="night: SIGKILL", inject=_signal_night(signal.SIGKILL)),
    Fault(name="night: stopped and continued", inject=_suspend_night),
    Fault(name="terminal: Ctrl-C", inject=_signal_group(signal.SIGINT)),
    Fault(name="terminal: closed", inject=_signal_group(signal.SIGHUP)),
    Fault(name="job: suspended and resumed", inject=_suspend_all),
    Fault(name="node: everything killed", inject=_kill_everything),
)

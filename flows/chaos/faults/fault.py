"""What a fault is: when it happens, and what it does to a night."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from signal import SIGKILL, Signals

from flows.chaos.trial import Layer, Trial

LAYERS: tuple[Layer, ...] = ("measuring", "command")


def do_nothing(trial: Trial) -> None:
    """The default of both parts of a fault."""


def signal_processes(*words: str, number: Signals = SIGKILL) -> Callable[[Trial], None]:
    """Send a signal to a process per word, which is among its arguments."""

    def inject(trial: Trial) -> None:
        found = [trial.find(word) for word in words]
        for each in found:
            each.send(number)

    return inject


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One row of the table of faults."""

    name: str
    layers: tuple[Layer, ...] = LAYERS
    prepare: Callable[[Trial], None] = do_nothing
    """Before the night starts."""
    inject: Callable[[Trial], None] = do_nothing
    """After a random event of the night."""
    slow: bool = False
    """Whether it takes minutes, most of them asleep: left out of a short run."""

"""Adds up durations that are told when they end, and may lie within one another, once each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class _Told:
    began: float
    ended: float


class NestedClock:
    """Seconds per stage, each instant given to the innermost stage that it belongs to.

    JAX tells how long a trace took when the trace is over: a jitted function that is traced within
    another one, or compiled while another one is traced, would otherwise be counted twice.
    """

    def __init__(self, stages: tuple[str, ...]) -> None:
        self.seconds = dict.fromkeys(stages, 0.0)
        self._outermost: list[_Told] = []

    def tell(self, stage: str, duration_s: float, ended: float) -> None:
        """A duration of `stage` has just ended; `ended` in seconds of one clock, ever later.

        One whose middle lies after this one's beginning is within it. Ends are read a little late,
        so comparing beginnings would miss an inner one that began together with the outer one.
        """
        told = _Told(ended - duration_s, ended)
        inner = 0.0
        while self._outermost and _middle(self._outermost[-1]) > told.began:
            each = self._outermost.pop()
            inner += each.ended - each.began
        self.seconds[stage] += max(0.0, duration_s - inner)
        self._outermost.append(told)


def _middle(told: _Told) -> float:
    return (told.began + told.ended) / 2

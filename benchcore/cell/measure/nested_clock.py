"""A clock for nested stages, such as a trace within another trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class _Span:
    began: float
    ended: float

    @property
    def middle(self) -> float:
        return (self.began + self.ended) / 2


class NestedClock:
    """Seconds per stage. Each instant counts for the innermost stage only.

    JAX reports a trace's duration at its end. A jitted function traced within another one, or
    compiled during another trace, would otherwise count twice.
    """

    def __init__(self, stages: tuple[str, ...]) -> None:
        self.seconds = dict.fromkeys(stages, 0.0)
        self._outermost: list[_Span] = []

    def record(self, stage: str, duration_s: float, ended: float) -> None:
        """Add a duration of `stage` that has just ended, at `ended` seconds of a steady clock.

        A span is inside this one if its middle is after this one's start. End times are read a
        little late, so comparing starts would miss an inner span that started together with the
        outer.
        """
        span = _Span(ended - duration_s, ended)
        inner = 0.0
        while self._outermost and self._outermost[-1].middle > span.began:
            each = self._outermost.pop()
            inner += each.ended - each.began
        self.seconds[stage] += max(0.0, duration_s - inner)
        self._outermost.append(span)

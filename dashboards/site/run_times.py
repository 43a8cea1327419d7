"""How long a campaign took, from its progress log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunTimes:
    """Seconds from its beginning to its last event, and those within duels; None = not logged."""

    wall_s: float | None
    measuring_s: float | None


def time_last_run(events: Iterable[Event]) -> RunTimes:
    """The times of the campaign's last run that measured a duel, else of its last one; None if the
    beginning was not logged."""
    runs: list[list[Event]] = []
    for event in events:
        if (event.get("event"), event.get("what")) == ("campaign", "begun"):
            runs.append([])
        if runs:
            runs[-1].append(event)
    timed = [_time(each) for each in runs]
    measured = [each for each in timed if each.measuring_s]
    nothing = RunTimes(wall_s=None, measuring_s=None)
    return (measured or timed or [nothing])[-1]


def _time(run: Sequence[Event]) -> RunTimes:
    times = [each["time"] for each in run if "time" in each]
    measuring, begun = 0.0, None
    for each in run:
        if each.get("event") == "duel":
            if each["what"] == "done" and begun is not None:
                measuring += each["time"] - begun
            begun = each["time"] if each["what"] == "begun" else None
    return RunTimes(wall_s=times[-1] - times[0], measuring_s=measuring)

"""How long a campaign's last run took, from its progress log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunTimes:
    """Seconds from its beginning to its last event, and those within duels; None = not logged."""

    wall_s: float | None
    measuring_s: float | None
    num_resumed: int


def time_last_run(events: Iterable[dict[str, Any]]) -> RunTimes:
    """The times of the campaign's last run; None if its beginning was not logged."""
    begun: float | None = None
    last = measuring = duel_begun = 0.0
    resumed = 0
    for event in events:
        last = event.get("time", last)
        match event.get("event"), event.get("what"):
            case "campaign", "begun":
                begun, measuring, resumed = event["time"], 0.0, 0
            case "duel", "begun":
                duel_begun = event["time"]
            case "duel", "resumed":
                resumed, duel_begun = resumed + 1, event["time"]
            case "duel", "done":
                measuring += event["time"] - duel_begun
            case _:
                pass
    if begun is None:
        return RunTimes(wall_s=None, measuring_s=None, num_resumed=resumed)
    return RunTimes(wall_s=last - begun, measuring_s=measuring, num_resumed=resumed)

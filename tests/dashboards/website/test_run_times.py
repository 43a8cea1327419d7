"""A page shows how long the measuring took, not how long a rerun looked for more to do."""

from __future__ import annotations

from typing import Any

from dashboards.website.gather import RunTimes, time_last_run


def _event(time: float, event: str, what: str = "") -> dict[str, Any]:
    return {"time": time, "event": event, "what": what}


MEASURED = [
    _event(0, "campaign", "begun"),
    _event(5, "duel", "begun"),
    _event(45, "duel", "done"),
    _event(46, "duel", "begun"),
    _event(66, "duel", "done"),
    _event(70, "check"),
]
RERUN = [
    _event(100, "campaign", "begun"),
    _event(110, "duel", "resumed"),
    _event(111, "duel", "done"),
    _event(120, "check"),
]


def test_a_rerun_that_measures_nothing_leaves_the_times() -> None:
    assert time_last_run(MEASURED) == RunTimes(wall_s=70, measuring_s=60)
    assert time_last_run(MEASURED + RERUN) == RunTimes(wall_s=70, measuring_s=60)


def test_a_run_without_a_duel_or_without_a_beginning() -> None:
    assert time_last_run(RERUN) == RunTimes(wall_s=20, measuring_s=0)
    assert time_last_run(MEASURED[1:]) == RunTimes(wall_s=None, measuring_s=None)

"""How often our own verdicts err, in ready words for the page and the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards.wording import format_count

_MEANING = {
    "false alarms": "of trials in which nothing changed",
    "alarms that were right": "of all alarms of these trials",
    "right side blamed": "of the slow-downs that were found",
}


def list_rates(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row a rate: its share with the interval, and whether that says anything yet."""
    return [
        {
            "what": row["rate"],
            "of": _MEANING.get(row["rate"], "of trials with that much more work on one side"),
            "count": f"{row['hits']} of {row['total']}",
            "share": _say_share(row),
            "note": _note(row, found["fewest_trials"]),
        }
        for row in found["rates"]
    ]


def _say_share(row: Mapping[str, Any]) -> str:
    if row["share"] is None:
        return "not known"
    return f"{row['share']:.0%} ({row['low']:.0%} to {row['high']:.0%})"


def _note(row: Mapping[str, Any], fewest: int) -> str:
    return f"too few yet: {fewest} say something" if row["too_few"] else ""


def list_smallest(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row a series: the smallest effect that a confirmation would find."""
    return [
        {
            "series": row["series"],
            "smallest": _say_smallest(row),
            "nights": format_count(row["nights"], "night"),
            "starts": format_count(row["starts"], "start"),
        }
        for row in found["smallest"]
    ]


def _say_smallest(row: Mapping[str, Any]) -> str:
    return "too few yet" if row["smallest"] is None else f"{row['smallest']:.1%}"


def list_trials(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row a trial, the newest first: what was done, and what was made of it."""
    return [
        {
            "series": row["series"],
            "truth": "nothing changed"
            if row["slowed"] is None
            else f"{row['slowed']} does {row['percent']} % more",
            "measured": "" if row["measured"] is None else f"{row['measured']:+.1%}",
            "starts": str(row["starts"]),
            "outcome": row["outcome"],
            "blamed": row["blamed"] or "",
        }
        for row in reversed(found["trials"])
    ]


def answer_calibration(found: Mapping[str, Any]) -> str:
    """One sentence: how many trials were judged, and how many are on their way."""
    said = f"{format_count(len(found['trials']), 'trial')} judged"
    if found["unfinished"]:
        said += f", {found['unfinished']} on the way"
    if found["lost"]:
        said += f"; {format_count(len(found['lost']), 'start')} did not count"
    return said + "."

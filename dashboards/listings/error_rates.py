"""Format the error rates of our own verdicts for the page and the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchcore.names import format_percent, format_signed
from dashboards.formatting import format_count

_MEANING = {
    "false alarms": "runs in which nothing changed",
    "alarms that were right": "alarms of these runs",
    "right culprit": "slow-downs that were detected",
}


def list_rates(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """One row per rate: its share with the interval, and whether there are enough runs."""
    return [
        {
            "what": row["rate"],
            "of": _MEANING.get(row["rate"], "runs with that much more work on one side"),
            "count": f"{row['hits']} of {row['total']}",
            "share": _format_share(row),
            "note": _note(row, found["fewest_runs"]),
        }
        for row in found["rates"]
    ]


def _format_share(row: Mapping[str, Any]) -> str:
    if row["share"] is None:
        return "unknown"
    return (
        f"{format_percent(row['share'])} ({100 * row['low']:.0f} to {format_percent(row['high'])})"
    )


def _note(row: Mapping[str, Any], fewest: int) -> str:
    return f"too few runs; at least {fewest} are needed" if row["too_few"] else ""


def list_smallest(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """One row per series: the smallest change that a confirmation would detect."""
    return [
        {
            "series": row["series"],
            "smallest": _format_smallest(row),
            "nights": format_count(row["nights"], "night"),
            "starts": format_count(row["starts"], "start"),
        }
        for row in found["smallest"]
    ]


def _format_smallest(row: Mapping[str, Any]) -> str:
    return "too few starts" if row["smallest"] is None else format_percent(row["smallest"], 1)


def list_calibration_runs(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """One row per calibration run, newest first: the injected change and the verdict."""
    return [
        {
            "series": row["series"],
            "truth": "no change"
            if row["slowed"] is None
            else f"{row['slowed']} does {row['percent']} % more work",
            "measured": "" if row["measured"] is None else format_signed(row["measured"]),
            "starts": str(row["starts"]),
            "outcome": row["outcome"],
            "culprit": row["culprit"] or "",
        }
        for row in reversed(found["runs"])
    ]


def answer_error_rates(found: Mapping[str, Any]) -> str:
    """`0 of 6 runs in which nothing changed gave a false alarm: too few runs, ...`; "" without
    such a run."""
    alarms = next((row for row in found["rates"] if row["rate"] == "false alarms"), None)
    if alarms is None or not alarms["total"]:
        return ""
    runs = f"{alarms['hits']} of {alarms['total']} {_MEANING['false alarms']} gave a false alarm"
    note = _note(alarms, found["fewest_runs"]) or _format_share(alarms)
    return f"{runs}: {note}."


def summarise_error_rates(found: Mapping[str, Any]) -> str:
    """One sentence: how many calibration runs were judged, and how many are unfinished."""
    text = f"{format_count(len(found['runs']), 'calibration run')} judged"
    if found["unfinished"]:
        text += f", {found['unfinished']} unfinished"
    if found["lost"]:
        text += f"; {format_count(len(found['lost']), 'start')} did not count"
    return f"{text[0].upper()}{text[1:]}."

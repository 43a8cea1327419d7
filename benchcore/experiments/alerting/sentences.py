"""The text of a message about several events of one cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

KINDS = {
    "event": "{cause} changed {number} series.",
    "grown": "What {cause} changed in {number} series grew.",
    "fixed": "What {cause} changed in {number} series is gone.",
}
"""What an alert reports of its events, and the sentence that counts them."""
_MOST_SENTENCES = 5


def join_sentences(kind: str, cause: str, alerts: Mapping[int, Mapping[str, Any]]) -> str:
    """A sentence per change, in the order of these alerts, which are by event; five at most. Those
    that report the same change of one contender share a sentence, that of the first."""
    changes = _list_changes(kind, alerts)
    first = changes[:_MOST_SENTENCES]
    text = " ".join(_describe(kind, events, alerts[events[0]]) for events in first)
    if len(alerts) > 1:
        text = f"{KINDS[kind].format(cause=cause, number=len(alerts))} {text}"
    rest = len(alerts) - sum(map(len, first))
    return f"{text} And {rest} more." if rest else text


def _list_changes(kind: str, alerts: Mapping[int, Mapping[str, Any]]) -> list[list[int]]:
    found = dict[object, list[int]]()
    for event, alert in alerts.items():
        subject = alert["details"].get("subject") if kind != "grown" else None
        found.setdefault((subject, alert.get("note")) if subject else event, []).append(event)
    return list(found.values())


def _describe(kind: str, events: Sequence[int], alert: Mapping[str, Any]) -> str:
    *others, last = map(str, events)
    named = f"Events {', '.join(others)} and {last}" if others else f"Event {last}"
    if kind == "fixed":
        is_over = "are over" if others else "is over"
        return f"{named} {is_over}: {alert['note']}. It was: {alert['text']}"
    return f"{named}{' grew' if kind == 'grown' else ''}: {alert['text']}"

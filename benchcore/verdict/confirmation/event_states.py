"""Events: the record of a confirmed change that people triage, and its states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from benchcore.errors import UserError

EventState = Literal[
    "untriaged",
    "investigating",
    "infrastructure",
    "invalid",
    "duplicate",
    "accepted",
    "fixed",
    "wont_fix",
    "improvement",
]

_ANSWERS: tuple[EventState, ...] = (
    *("investigating", "infrastructure", "invalid", "duplicate"),
    *("accepted", "wont_fix", "improvement"),
)
NEXT: Mapping[EventState, tuple[EventState, ...]] = {
    "untriaged": _ANSWERS,
    "investigating": (*_ANSWERS[1:], "fixed"),
    "infrastructure": ("investigating", "fixed", "accepted"),
    "invalid": ("investigating",),
    "duplicate": ("investigating",),
    "accepted": ("investigating", "fixed"),
    "wont_fix": ("investigating", "fixed"),
    "improvement": ("investigating",),
    "fixed": ("investigating",),
}
"""Nothing goes back to `untriaged`, and only what was seen for real can be `fixed`."""

OPEN: tuple[EventState, ...] = ("untriaged", "investigating", "infrastructure")
"""Nobody has closed an event in these. If its change is gone, it becomes `fixed` by itself."""
BASELINES: tuple[EventState, ...] = ("accepted", "wont_fix", "improvement")
"""In these a person has accepted the new level as the one to compare with."""


def check_move(old: EventState, new: str) -> EventState:
    """The new state. Raises UserError, naming what there is, if that change is not allowed."""
    if new not in get_args(EventState):
        raise UserError(
            f"no state {new!r:.100}; choose one of {', '.join(get_args(EventState))} with --as"
        )
    if new not in NEXT[old]:
        raise UserError(
            f"wanted a state that {old!r} can go to, got {new!r}; choose one of "
            f"{', '.join(NEXT[old])} with --as"
        )
    return new  # type: ignore[return-value]


def first_state(culprit: str) -> EventState:
    """The state of a new event: `infrastructure` if that is the culprit, else `untriaged`."""
    return "infrastructure" if culprit == "infrastructure" else "untriaged"


def find_shift(finding: Mapping[str, Any]) -> Mapping[str, Any]:
    """How far the ratio moved, as log ratios: what fresh starts of old and new environments show,
    or how far the machine is from the nights before, if it is the culprit. Empty if neither shows
    what it moved, as where a control found it."""
    level: Mapping[str, Any] = finding.get("machine_level") or {}
    change: Mapping[str, Any] = finding.get("change") or {}
    if finding.get("culprit") != "infrastructure":
        return change
    if level.get("verdict") == "different":
        return level
    return {} if change.get("verdict") == "same" else change

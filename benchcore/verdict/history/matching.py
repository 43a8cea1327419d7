"""Match what a history shows with stored suspicions: one shift is one suspicion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchcore.verdict.history.growth import OpenChange
from benchcore.verdict.history.suspicions import Suspicion, Trigger
from benchcore.verdict.history.thresholds import SAME_SHIFT_NIGHTS

_LASTING = ("shift", "bridge")
"""Triggers for a level that has lasted; with more nights the other triggers can become one."""
_LONGER = 1.25
"""How many times as long an unknown or passed one must have lasted before it is measured again:
every night in the beginning, when each adds most."""
State = Literal["open", "confirmed", "refuted", "unknown", "passed", "gone"]
"""`passed`: undecided when history no longer showed it, as where the series returned to the old
level. `gone`: undecided when its series ended, as on a device that was replaced; a series that
continues opens it again."""
UNDECIDED: tuple[State, ...] = ("open", "unknown")


@dataclass(frozen=True, kw_only=True)
class StoredSuspicion:
    """A stored suspicion: since which day, in which direction, and its answer.

    `answered` is the day of the answer, or of its end; None = open, or not known. `compared` are
    the days of its nights before and after; None = they no longer count. `is_return`: it is refuted
    because the machine was at the new level before. `may_grow`: it is confirmed, its event is open,
    and its level may move further by the same cause.
    """

    id: int
    trigger: Trigger
    number: int
    ratio: float
    state: State
    answered: int | None = None
    compared: tuple[int, int] | None = None
    is_return: bool = False
    may_grow: bool = False

    @property
    def leads_on(self) -> bool:
        """Whether later nights are at the level that it led to: drift is measured from there."""
        return self.state == "confirmed" or self.is_return


@dataclass(frozen=True, kw_only=True)
class SuspicionUpdate:
    """A change to the stored ones: open one (`known` None), update one, or mark one as passed
    (`found` None)."""

    known: int | None
    found: Suspicion | None


def reconcile(
    found: Sequence[Suspicion], known: Sequence[StoredSuspicion], today: int | None = None
) -> list[SuspicionUpdate]:
    """The changes to a series' stored suspicions, given its current ones.

    An answered suspicion stays answered, except in two cases: more nights made it a shift, or it is
    `unknown` or `passed` and by the day `today` has lasted `_LONGER` times as long as when it was
    answered. An undecided one that history no longer shows has passed; a gone one that later nights
    show is open again. A confirmed one explains every later trace of it.
    """
    left = list(known)
    grown_first = sorted(enumerate(found), key=lambda each: each[1].grows is None)
    matches = {number: _take(left, each, _is_same) for number, each in grown_first}
    for number, each in enumerate(found):
        matches[number] = matches[number] or _take(left, each, _is_trace)
    changes: list[SuspicionUpdate] = []
    for number, each in enumerate(found):
        same = matches[number]
        if same is None:
            changes.append(SuspicionUpdate(known=None, found=each))
            continue
        grown = each.trigger in _LASTING and same.trigger not in _LASTING
        again = grown or _has_lasted(each, same, today)
        if same.state == "open" or _is_back(same, today) or (again and same.state != "confirmed"):
            changes.append(SuspicionUpdate(known=same.id, found=each))
    passed = [one for one in left if one.state in UNDECIDED]
    return [*changes, *(SuspicionUpdate(known=one.id, found=None) for one in passed)]


def _take(
    left: list[StoredSuspicion],
    found: Suspicion,
    is_same: Callable[[Suspicion, StoredSuspicion], bool],
) -> StoredSuspicion | None:
    """Take the nearest of these, of equally near ones the newest, out of the list. A drift that
    begins at a shift is only taken if no other is left."""

    def rank(one: StoredSuspicion) -> tuple[bool, int, int]:
        is_other = (one.trigger == "drift") != (found.trigger == "drift")
        return is_other, abs(one.number - found.since.number), -one.id

    same = min((one for one in left if is_same(found, one)), key=rank, default=None)
    if same is not None:
        left.remove(same)
    return same


def list_explained(known: Iterable[StoredSuspicion]) -> list[tuple[int, int]]:
    """The days that confirmed suspicions and returns compared, for `suspect`. Of a drift only the
    last one: it explains no single release between them, but later drift is measured from there."""
    leading = [(each, each.compared) for each in known if each.leads_on]
    return [
        (days[1], days[1]) if each.trigger == "drift" else days for each, days in leading if days
    ]


def list_growing(known: Iterable[StoredSuspicion]) -> list[OpenChange]:
    """The confirmed changes that may go on, for `suspect`."""
    return [
        OpenChange(
            before=each.compared[0],
            after=each.compared[1],
            ratio=each.ratio,
            anchor=each.number if each.trigger == "drift" else None,
        )
        for each in known
        if each.may_grow and each.compared is not None
    ]


def _is_same(found: Suspicion, known: StoredSuspicion) -> bool:
    if found.grows is not None and known.state == "confirmed":
        return known.compared is not None and known.compared[1] > found.grows
    if _has_later_release(found, known) or _goes_on(found, known):
        return False
    later = known.number - found.since.number
    if found.trigger == "version" and 0 <= later <= SAME_SHIFT_NIGHTS:
        return True  # these starts compared both environments, whichever way the nights went
    same_way = (found.ratio > 1) == (known.ratio > 1)
    return same_way and (abs(later) <= SAME_SHIFT_NIGHTS or _was_compared(found, known))


def _was_compared(found: Suspicion, known: StoredSuspicion) -> bool:
    """Whether it began between the nights that a confirmed one compared: nights that were ingested
    later place a change of a gap within it."""
    if (
        known.state != "confirmed"
        or known.compared is None
        or "drift" in (known.trigger, found.trigger)
    ):
        return False
    before, after = known.compared
    return before < found.since.number <= after


def _is_trace(found: Suspicion, known: StoredSuspicion) -> bool:
    """Whether a confirmed shift explains a drift since a night before it."""
    same_way = (found.ratio > 1) == (known.ratio > 1)
    is_later = known.number >= found.since.number
    is_drift = found.trigger == "drift" and found.grows is None
    return is_drift and known.state == "confirmed" and same_way and is_later


def _goes_on(found: Suspicion, known: StoredSuspicion) -> bool:
    """Whether it is a drift from the level that a confirmed change or a return led to."""
    since = known.compared[1] if known.leads_on and known.compared else None
    return found.trigger == "drift" and since is not None and found.since.number >= since


def _has_later_release(found: Suspicion, known: StoredSuspicion) -> bool:
    """Whether it compares environments that came after those which the known one compared."""
    if found.trigger == "drift" or known.compared is None:
        return False
    is_later = found.before.number >= known.compared[1]
    return is_later and found.before.environments != found.after.environments


def _is_back(known: StoredSuspicion, today: int | None) -> bool:
    """Whether its series has nights again since it was gone."""
    ended = known.answered if known.state == "gone" else None
    return ended is not None and today is not None and today > ended


def _has_lasted(found: Suspicion, known: StoredSuspicion, today: int | None) -> bool:
    if known.state not in ("unknown", "passed") or known.answered is None or today is None:
        return False
    return today - found.since.number >= _LONGER * max(known.answered - found.since.number, 1)

"""Finds the night in which a duel ran: by its campaign, and where a wrong clock dated it ahead."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple

MOST_AHEAD = 4
"""Nights in a row that a wrong clock may have dated ahead of the others."""
_AHEAD = timedelta(days=14)
"""Nights that are dated after such a gap, or so far in the future, may be of a wrong clock."""
IN_ORDER = 8
"""Last nights that must have been ingested as they are dated, before one is taken for ahead."""
_DAY = timedelta(days=1)
_NAMED = re.compile(r"nightly-.+-(\d{4}-\d{2}-\d{2})")


def find_date(campaign: str, at: datetime) -> date:
    """The date of the night to which a duel belongs that ran `at` a time: the one in its campaign's
    name, which is that of its schedule's time zone; a night may also begin before midnight and end
    after it. If there is none, or the duel ran on another night, its UTC date."""
    ran, named = at.astimezone(UTC).date(), _read_date(campaign)
    return named if named is not None and abs(named - ran) <= _DAY else ran


@lru_cache(maxsize=2000)
def _read_date(campaign: str) -> date | None:
    found = _NAMED.fullmatch(campaign)
    try:
        return date.fromisoformat(found[1]) if found else None
    except ValueError:  # such as the 31st of February
        return None


def move_into_night(campaign: str, at: datetime) -> datetime:
    """The time nearest to this one that is on the date of its night, in UTC."""
    begin = datetime.combine(find_date(campaign, at), time.min, UTC)
    return min(max(at, begin), begin + _DAY - timedelta.resolution)


class DatedNight(NamedTuple):
    """When a night ran by its machine's clock, and when it was ingested; None = not known."""

    at: datetime
    ingested: datetime | None = None


def find_ahead(nights: Sequence[DatedNight], now: datetime | None = None) -> dict[int, int]:
    """The rows of the nights, in the order of their dates, that a wrong clock dated ahead, with how
    many of the others came before each.

    Such a night follows a gap and is in the future; or some nights that are dated before it were
    ingested after it, one after the other, and it fits on a day between two others. After a gap one
    such night is enough, else two are. `now` None = of the clock.
    """
    now = now or datetime.now(UTC)
    found, rest, group = dict[int, int](), list[DatedNight](), list[int]()
    for row, night in enumerate(nights):
        position = _find_position(rest, night, [*found.values()], now) if rest else None
        if position is None:
            rest.append(night)
            group.clear()
            continue
        found[row] = position
        group.append(row)
        if len(group) > MOST_AHEAD:  # these are the ones of a right clock
            rest += [nights[each] for each in group]
            for each in group:
                del found[each]
            group.clear()
    return found


def _find_position(
    rest: Sequence[DatedNight], night: DatedNight, taken: Sequence[int], now: datetime
) -> int | None:
    """How many of the rest, which are dated before this night, came before it; None = it isn't
    ahead, as far as is known."""
    is_far = night.at - rest[-1].at > _AHEAD
    position, last = len(rest) - _count_later(rest, night), rest[-IN_ORDER:]
    if position == len(rest) or len(last) < IN_ORDER or not _came_in_order(last):
        return len(rest) if is_far and night.at > now + _AHEAD else None
    if position == 0:
        return position if is_far else None
    days = (rest[position].at.date() - rest[position - 1].at.date()).days
    is_late = len(rest) - position > (0 if is_far else 1)
    return position if is_late and days > 1 + taken.count(position) else None


def date_nights(nights: Sequence[DatedNight]) -> list[datetime]:
    """When the nights ran; they come in the order of their dates. A night that a wrong clock dated
    ahead is moved between the nights that came before and after it. Otherwise it would stay the
    last night, and its environments the newest ones."""
    dates, ahead = [each.at for each in nights], find_ahead(nights)
    rest = [each.at for row, each in enumerate(nights) if row not in ahead]
    groups = defaultdict[int, list[int]](list)
    for row in sorted(ahead, key=lambda each: nights[each].ingested or nights[each].at):
        groups[ahead[row]].append(row)
    for position, rows in groups.items():
        parts = len(rows) + 1
        before = rest[position - 1] if position else rest[0] - parts * _DAY
        after = rest[position] if position < len(rest) else before + parts * _DAY
        for nth, row in enumerate(rows, start=1):
            dates[row] = before + nth * (after - before) / parts
    return dates


def _count_later(rest: Sequence[DatedNight], night: DatedNight) -> int:
    """How many of the last nights of the rest were ingested after that one."""
    came = night.ingested
    if came is None:
        return 0
    return sum(1 for _ in takewhile(lambda each: (each.ingested or came) > came, reversed(rest)))


def _came_in_order(nights: Sequence[DatedNight]) -> bool:
    """Whether they were ingested as they are dated: where they were not, as after a rebuild, the
    order of ingestion shows nothing."""
    return all(
        one.ingested is not None and other.ingested is not None and one.ingested <= other.ingested
        for one, other in pairwise(nights)
    )

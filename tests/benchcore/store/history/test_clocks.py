"""Which night a duel belongs to, and which nights a wrong clock dated ahead, by the order in which
they came."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import pytest

from benchcore.store.history.clocks import DatedNight, date_nights, find_date, move_into_night

FIRST = datetime(2025, 1, 1, 3, tzinfo=UTC)
PLAIN = tuple(range(10))


def _date(days: Sequence[float], order: Sequence[int] | None = None) -> list[float]:
    """The days of nights that came in this order (by their places in `days`); None = as listed."""
    order = order or range(len(days))
    nights = [
        DatedNight(FIRST + timedelta(days=day), FIRST + timedelta(minutes=order.index(place)))
        for place, day in enumerate(days)
    ]
    rows = sorted(range(len(days)), key=lambda row: nights[row].at)
    dated = date_nights([nights[row] for row in rows])
    return [round((dated[rows.index(place)] - FIRST) / timedelta(days=1), 1) for place in order]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ((*PLAIN, 15, 11, 12), (*PLAIN, 10, 11, 12)),
        ((*PLAIN, 15, 11), (*PLAIN, 15, 11)),  # one later night may be a late document
        ((*PLAIN, 40, 11), (*PLAIN, 10, 11)),
        ((*PLAIN, 15, 16, 12, 13), (*PLAIN, 10, 11, 12, 13)),
        ((*PLAIN, 12, 11, 12.5, 13), (*PLAIN, 12, 11, 12.5, 13)),
        ((*PLAIN, 15, *range(11, 20)), tuple(range(20))),  # its date is over
        ((*PLAIN, 40), (*PLAIN, 40)),  # a pause
        ((*PLAIN, *range(40, 45), 10, 11), (*PLAIN, *range(40, 45), 10, 11)),  # too many
        ((*PLAIN, 13, 10, 11, 12), (*PLAIN, 13, 10, 11, 12)),  # three came late: no day is free
    ],
)
def test_a_night_that_was_dated_ahead_is_put_where_it_came(
    days: Sequence[float], expected: Sequence[float]
) -> None:
    assert _date(days) == list(expected)


def test_where_nights_came_in_another_order_they_stay_as_they_are_dated() -> None:
    """As after a rebuild."""
    days = (*range(9), 40, *range(10, 14))
    order = [3, 9, 1, 12, 0, 7, 2, 8, 11, 4, 10, 6, 5, 13]
    assert _date(days, order) == [days[place] for place in order]
    assert _date((0, 1, 2, 900_000, 4, 5), [5, 3, 0, 1, 4, 2])[1] == 6.0  # it is in the future


_NIGHT = "nightly-laptop-2026-07-02"


@pytest.mark.parametrize(
    ("campaign", "at", "night"),
    [
        (_NIGHT, "2026-07-01T23:00:00+00:00", 2),  # 1:00 in Berlin
        (_NIGHT, "2026-07-02T23:59:00+00:00", 2),
        (_NIGHT, "2026-07-03T00:20:00+00:00", 2),  # it ended after midnight
        (_NIGHT, "2026-07-02T01:00:00+02:00", 2),
        (_NIGHT, "2026-07-09T23:00:00+00:00", 9),  # it was completed a week later
        ("run-mlp-20260702t101500", "2026-07-01T23:00:00+00:00", 1),
        ("nightly-laptop-2026-02-31", "2026-07-01T23:00:00+00:00", 1),
    ],
)
def test_a_duel_is_of_the_night_that_its_campaign_is_named_after(
    campaign: str, at: str, night: int
) -> None:
    began = datetime.fromisoformat(at)
    assert find_date(campaign, began) == date(2026, 7, night)
    moved = move_into_night(campaign, began)
    assert moved.astimezone(UTC).date() == date(2026, 7, night)
    assert moved == began or began.astimezone(UTC).day != night

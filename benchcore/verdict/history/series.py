"""A series: one ratio over nights, on one device, by one method. Any difference in these makes
another series, and they are never mixed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime

import numpy as np

from benchcore.errors import UserError
from benchcore.protocol import name_case


@dataclass(frozen=True, kw_only=True, order=True)
class SeriesKey:
    """What all nights of a series have in common: the case, both arms without their versions, the
    device, and the method."""

    workload: str
    case_name: str
    track: str
    a_arm: str
    b_arm: str
    device_fingerprint: str
    method: int
    checkpoint: str | None = None

    @property
    def title(self) -> str:
        """The name for people."""
        case = name_case(self.workload, self.case_name, self.track)
        return f"{case}: {self.a_arm} against {self.b_arm}"


@dataclass(frozen=True, kw_only=True)
class Night:
    """One night of a series: log(T_b / T_a), and its duel run and environments."""

    key: SeriesKey
    at: datetime
    duel_run: str
    log_ratio: float
    a: str
    b: str
    a_environment: str
    b_environment: str

    @property
    def number(self) -> int:
        """Days, by the UTC date."""
        return self.at.date().toordinal()


@dataclass(frozen=True, kw_only=True)
class Series:
    """At least one night, oldest first, one per date."""

    key: SeriesKey
    nights: tuple[Night, ...]

    @property
    def values(self) -> np.ndarray:
        """T_b / T_a, one per night."""
        return np.exp([night.log_ratio for night in self.nights])

    @property
    def numbers(self) -> np.ndarray:
        """The nights' dates as days."""
        return np.array([night.number for night in self.nights], float)


def make_series(nights: Iterable[Night]) -> Series:
    """The series of these nights, in any order. If a date was measured twice, the last run counts.

    Raises UserError without nights, for nights of several devices, methods, cases or arms, and for
    a ratio that is not a number.
    """
    given = sorted(nights, key=lambda night: (night.at, night.duel_run))
    if not given:
        raise UserError("wanted the nights of a series, got none; measure one first")
    key = given[0].key
    for night in given:
        if night.key != key:
            raise UserError(_describe_mixture(key, night.key))
        if not math.isfinite(night.log_ratio):
            raise UserError(
                f"wanted a ratio in every night of {key.title}, got {night.log_ratio!r} in duel "
                f"run {night.duel_run!r}; leave out nights that don't count"
            )
    by_date = {night.number: night for night in given}
    return Series(key=key, nights=tuple(by_date.values()))


def _describe_mixture(key: SeriesKey, other: SeriesKey) -> str:
    differing = [
        f"{field.name} {getattr(key, field.name)!r} and {getattr(other, field.name)!r}"
        for field in fields(key)
        if getattr(key, field.name) != getattr(other, field.name)
    ]
    return (
        f"wanted nights of one series, got {', '.join(differing)}: these can't be compared over "
        "time; judge them separately"
    )

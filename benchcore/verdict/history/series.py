"""A series: one ratio of one metric over nights, on one device, by one method. Any difference in
these makes another series, and they are never mixed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime

import numpy as np

from benchcore.errors import UserError
from benchcore.protocol import Role, name_case
from benchcore.verdict.history.conditions import Conditions
from benchcore.verdict.history.thresholds import STEP_SCALE, SeriesScale

STEP_TIME = "median_step_ns"
"""The key of the metric whose ratio every duel judges, in `benchcore.store.metrics`."""


@dataclass(frozen=True, kw_only=True, order=True)
class SeriesKey:
    """What all nights of a series have in common: the case, both arms without their versions, the
    device, the method, and the metric.

    `control` is the role of the older environment of a's own framework that is side b: what the
    machine does cancels in their ratio. None = b is the other framework.
    """

    workload: str
    case_name: str
    track: str
    a_arm: str
    b_arm: str
    device_fingerprint: str
    method: int
    checkpoint: str | None = None
    metric: str = STEP_TIME
    control: Role | None = None

    @property
    def title(self) -> str:
        """The name for people; step time is not named."""
        case = name_case(self.workload, self.case_name, self.track)
        b = self.b_arm if self.control is None else f"its {self.control} version"
        metric = "" if self.metric == STEP_TIME else f", {self.metric}"
        return f"{case}: {self.a_arm} against {b}{metric}"


@dataclass(frozen=True, kw_only=True)
class Night:
    """One night of a series: log(T_b / T_a), its duel run and environments, and what
    it ran under.

    `values` are both sides' amounts in the metric's unit; None where only the ratio is judged.
    `offset` was added to what the duel measured, where the control is another one than at first
    (`benchcore.verdict.history.controls`).
    """

    key: SeriesKey
    at: datetime
    duel_run: str
    log_ratio: float
    a: str
    b: str
    a_environment: str
    b_environment: str
    a_version: str = ""
    b_version: str = ""
    offset: float = 0.0
    values: tuple[float, float] | None = None
    conditions: Conditions = field(default_factory=dict[str, str])

    @property
    def number(self) -> int:
        """Days, by the UTC date."""
        return self.at.date().toordinal()


@dataclass(frozen=True, kw_only=True)
class Series:
    """At least one night, oldest first, one per date."""

    key: SeriesKey
    nights: tuple[Night, ...]
    scale: SeriesScale = STEP_SCALE

    @property
    def values(self) -> np.ndarray:
        """T_b / T_a, one per night."""
        return np.exp([night.log_ratio for night in self.nights])

    @property
    def numbers(self) -> np.ndarray:
        """The nights' dates as days."""
        return np.array([night.number for night in self.nights], float)


def make_series(nights: Iterable[Night], scale: SeriesScale = STEP_SCALE) -> Series:
    """The series of these nights, in any order, on the scale of its metric. If a date was measured
    twice, the last run counts.

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
    return Series(key=key, nights=tuple(by_date.values()), scale=scale)


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

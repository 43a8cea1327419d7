"""A series: one ratio of one metric over nights, on one device. Any difference in these makes
another series, and they are never mixed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from itertools import pairwise

import numpy as np

from benchcore.errors import UserError
from benchcore.names import format_move
from benchcore.protocol import Role, name_case
from benchcore.verdict.history.conditions import ConditionChange, Conditions, describe_changes
from benchcore.verdict.history.thresholds import LASTING_NIGHTS, STEP_SCALE, SeriesScale

STEP_TIME = "median_step_ns"
"""The key of the metric whose ratio every duel judges, in `benchcore.store.metrics`."""
METHOD_CONDITION = "METHOD"
"""The condition that holds the number of the measuring method."""
_APART = 5.0
"""Distance of two environments' levels that is certain: four standard errors of a median, with the
median of the nights' differences for their standard deviation, which is about as large."""


@dataclass(frozen=True, kw_only=True, order=True)
class SeriesKey:
    """What all nights of a series have in common: the case, both arms without their versions, the
    device, and the metric.

    `control` is the role of the older environment of a's own framework that is side b: what the
    machine does cancels in their ratio. None = b is the other framework.
    """

    workload: str
    case_name: str
    track: str
    a_arm: str
    b_arm: str
    device_fingerprint: str
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

    `replaced` are the earlier runs of its date, oldest first: answers may rest on them.
    `values` are both sides' amounts in the metric's unit; None where only the ratio is judged.
    `offset` was added to what the duel measured, where the control is another one than at first
    (`link_controls`). `bridged` was taken from it, because a condition moved
    the level; `controls` are the ratios of all pairs of the same arms in its duel, by their
    environments, before either (`benchcore.verdict.history.bridges`).
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
    replaced: tuple[str, ...] = ()
    offset: float = 0.0
    bridged: float = 0.0
    controls: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    values: tuple[float, float] | None = None
    conditions: Conditions = field(default_factory=dict[str, str])

    @property
    def environments(self) -> tuple[str, str]:
        """The environments of both sides."""
        return self.a_environment, self.b_environment

    @property
    def number(self) -> int:
        """Days, by the UTC date."""
        return self.at.date().toordinal()


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """How far conditions that changed on the night `at` moved log(T_b / T_a), by the ratio of a
    `pair` of environments that this many nights measured before and after; None = not known.

    `applied`: the move was taken from the nights since, so that the series continues across it.
    """

    at: datetime
    changes: tuple[ConditionChange, ...]
    pair: tuple[str, str] | None = None
    num_before: int = 0
    num_after: int = 0
    log_ratio: float | None = None
    low: float | None = None
    high: float | None = None
    applied: bool = False

    @property
    def reason(self) -> str:
        """Why the move is not known; empty = it can be measured."""
        if self.pair is None:
            return "no two environments were measured on both sides of it"
        if min(self.num_before, self.num_after) >= LASTING_NIGHTS:
            return ""
        return (
            f"its control pair was measured in {self.num_before} nights before and "
            f"{self.num_after} after; {LASTING_NIGHTS} of each are needed"
        )

    @property
    def summary(self) -> str:
        """The change and what it did, as one sentence without a full stop."""
        changed = f"{describe_changes(self.changes)} on {self.at:%Y-%m-%d}"
        if self.log_ratio is None or self.low is None or self.high is None:
            return f"{changed} is not bridged: {self.reason}"
        middle, low, high = map(math.expm1, (self.log_ratio, self.low, self.high))
        effect = "is bridged" if self.applied else "shows no effect that matters"
        return f"{changed} {effect}: {format_move(middle, low, high)} between the same environments"


@dataclass(frozen=True, kw_only=True)
class Series:
    """At least one night, oldest first, one per date, and the bridges between them."""

    key: SeriesKey
    nights: tuple[Night, ...]
    scale: SeriesScale = STEP_SCALE
    bridges: tuple[Bridge, ...] = ()

    @property
    def values(self) -> np.ndarray:
        """T_b / T_a, one per night."""
        return np.exp([night.log_ratio for night in self.nights])

    @property
    def numbers(self) -> np.ndarray:
        """The nights' dates as days."""
        return np.array([night.number for night in self.nights], float)

    def list_rows(self) -> dict[str, int]:
        """The rows of the nights by duel run, also by the runs that they replaced."""
        rows = enumerate(self.nights)
        return {run: row for row, night in rows for run in (*night.replaced, night.duel_run)}

    def list_releases(self) -> list[int]:
        """The rows of the nights with a new environment."""
        return [
            row
            for row, (old, new) in enumerate(pairwise(self.nights), start=1)
            if old.a_environment != new.a_environment or old.b_environment != new.b_environment
        ]


def make_series(
    nights: Iterable[Night], scale: SeriesScale = STEP_SCALE, bridges: Iterable[Bridge] = ()
) -> Series:
    """The series of these nights, in any order, on the scale of its metric. If a date was measured
    twice, the last run counts.

    Raises UserError without nights, for nights of several devices, cases or arms, and for a ratio
    that is not a number.
    """
    given = sorted(nights, key=lambda night: (night.at, night.duel_run))
    if not given:
        raise UserError("wanted the nights of a series, got none; measure one first")
    key = given[0].key
    for night in given:
        if night.key is not key and night.key != key:
            raise UserError(_describe_mixture(key, night.key))
        if not math.isfinite(night.log_ratio):
            raise UserError(
                f"wanted a ratio in every night of {key.title}, got {night.log_ratio!r} in duel "
                f"run {night.duel_run!r}; leave out nights that don't count"
            )
    by_date: dict[int, Night] = {}
    for night in given:
        number = night.number
        old = by_date.get(number)
        runs = () if old is None else (*old.replaced, old.duel_run)
        by_date[number] = replace(night, replaced=runs) if runs else night
    return Series(key=key, nights=tuple(by_date.values()), scale=scale, bridges=tuple(bridges))


def link_controls(nights: Iterable[Night]) -> list[Night]:
    """The nights as if side b had been the first control throughout, oldest first.

    On a release both sides roll: the newest version becomes the control. A shift that it brought
    would be seen twice, once up and once down. A control that was the newest version before has
    a known level, which is added to the ratio as its `offset`. A control that never was leaves
    nothing to link with: only the nights from it on are kept.
    """
    linked: list[Night] = []
    offsets: dict[str, float] = {}
    for night in sorted(nights, key=lambda each: (each.at, each.duel_run)):
        control = night.b_version
        if control not in offsets:
            level = _list_last_level(linked, control)
            if not level:
                linked.clear()
                offsets.clear()
            offsets[control] = statistics.median(level) if level else 0.0
        offset = offsets[control]
        moved = night.log_ratio + offset
        linked.append(replace(night, log_ratio=moved, offset=offset) if offset else night)
    return linked


def _list_last_level(linked: Sequence[Night], version: str) -> list[float]:
    """The log ratios of the nights with that newest version, since an environment of it that
    certainly has another level than those after it: a package may have moved it."""
    nights = [each for each in linked if each.a_version == version]
    logs = np.array([each.log_ratio for each in nights])
    deviation = float(np.median(np.abs(np.diff(logs)))) if len(logs) > 1 else 0.0
    begins = [
        row
        for row, night in enumerate(nights)
        if row == 0 or night.a_environment != nights[row - 1].a_environment
    ]
    for begin, end in reversed([*pairwise(begins)]):
        of_environment, since = logs[begin:end], logs[end:]
        if len(since) < LASTING_NIGHTS:
            continue
        error = deviation * math.sqrt(1 / len(of_environment) + 1 / len(since))
        if abs(float(np.median(of_environment) - np.median(since))) > _APART * error:
            return since.tolist()
    return logs.tolist()


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

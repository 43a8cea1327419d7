"""What the store hands out and takes in: plain data, free of any database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchcore.verdict.confirmation import Asked
from benchcore.verdict.ratios import Side
from benchcore.verdict.series import SeriesKey


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A failed expectation. It concerns a pair, one contender, or (neither named) a whole duel."""

    duel_run: str
    contender: str | None
    other: str | None
    suite: str
    expectation: str
    reason: str

    @property
    def names(self) -> frozenset[str]:
        """The contenders it concerns; empty = all of the duel."""
        return frozenset(name for name in (self.contender, self.other) if name is not None)


@dataclass(frozen=True, kw_only=True)
class DuelRecord:
    """A duel run as it is judged. `checked` is False until the data checks have seen it."""

    duel_run: str
    campaign: str
    checked: bool
    sides: tuple[Side, ...]
    marks: tuple[Mark, ...]

    @property
    def rounds(self) -> Mapping[str, Mapping[int, float]]:
        """By contender: nanoseconds of a step in each round that may count, of its one start."""
        return {
            side.name: dict(pair for start in side.valid_starts.values() for pair in start.items())
            for side in self.sides
        }


@dataclass(frozen=True, kw_only=True)
class SubjectSide:
    """A contender as it was measured in one night."""

    name: str
    arm: str
    framework: str
    version: str
    settings: Mapping[str, Any]
    environment_key: str
    python_version: str


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a suspicion is about: both sides as they were surely before it, and surely after."""

    id: int
    key: SeriesKey
    trigger: str
    device: str
    device_model: str
    asked: Asked
    a_old: SubjectSide
    a_new: SubjectSide
    b_old: SubjectSide
    b_new: SubjectSide

"""Plain data that the store returns and accepts, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from benchcore.protocol import ContenderIdentity, name_case
from benchcore.verdict.duel.ratios import ContenderTimes, Exclusion
from benchcore.verdict.history.conditions import ConditionChange
from benchcore.verdict.history.levels import HistoryLevels
from benchcore.verdict.history.series import SeriesKey

_UNCHECKED = Exclusion(frozenset(), "the data checks have not seen this duel run")


def case_of(row: Mapping[str, Any]) -> str:
    """The case of a row that has `workload`, `case_name` and `track`, named as everywhere."""
    return name_case(row["workload"], row["case_name"], row["track"])


Severity = Literal["critical", "warning"]
"""Great Expectations' words. What fails a critical check does not count; a warning is reported."""


@dataclass(frozen=True, kw_only=True)
class FailedCheck:
    """A failed expectation. It concerns a pair, one contender, or (neither named) a whole duel."""

    duel_run: str
    contender: str | None
    other: str | None
    suite: str
    expectation: str
    reason: str
    severity: Severity = "critical"

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
    sides: tuple[ContenderTimes, ...]
    failed_checks: tuple[FailedCheck, ...]

    @property
    def exclusions(self) -> list[Exclusion]:
        """What takes no part in ratios: a pair, all pairs of a contender, or of the whole duel."""
        failed = [
            Exclusion(each.names, each.reason)
            for each in self.failed_checks
            if each.severity == "critical"
        ]
        return failed if self.checked else [_UNCHECKED, *failed]

    @property
    def rounds(self) -> Mapping[str, Mapping[int, float]]:
        """Nanoseconds of a step in each round that may count, by contender, of its one start."""
        return {
            side.name: dict(pair for start in side.valid_starts.values() for pair in start.items())
            for side in self.sides
        }


@dataclass(frozen=True, kw_only=True)
class ContenderRecord(ContenderIdentity):
    """A contender as it was measured in one night."""

    settings: Mapping[str, Any]
    environment_key: str
    python_version: str


@dataclass(frozen=True, kw_only=True)
class SuspicionRecord:
    """What a suspicion is about: both sides as they were surely before it, and surely after."""

    id: int
    key: SeriesKey
    trigger: str
    device: str
    device_model: str
    site: str
    campaign: str
    """Of the night after it."""
    since: date
    """The night since which the series is at the new level."""
    levels: HistoryLevels
    a_old: ContenderRecord
    a_new: ContenderRecord
    b_old: ContenderRecord
    b_new: ContenderRecord
    conditions: tuple[ConditionChange, ...] = ()
    """Those that changed between both nights."""
    attempt: str = ""
    """Identifies a confirmation after an earlier one that found something; empty = the first."""

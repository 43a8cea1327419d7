"""On which suspicions a night's time is spent: those first that promise the most for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """A suspicion: by how much the log ratio moved, how many suspicions of its trigger were
    confirmed of those that were answered, and the seconds that a start of its duel takes."""

    id: int
    log_ratio: float
    num_confirmed: int
    num_answered: int
    start_s: float

    @property
    def expected_value(self) -> float:
        """The move that we expect to confirm, for each second of measuring. The chance is Laplace's
        rule of succession, so that what was never answered has one of a half."""
        chance = (self.num_confirmed + 1) / (self.num_answered + 2)
        return chance * abs(self.log_ratio) / self.start_s


def rank(prospects: Iterable[Prospect]) -> list[int]:
    """Their ids, the most promising first; of equal ones the older."""
    return [each.id for each in sorted(prospects, key=lambda each: (-each.expected_value, each.id))]

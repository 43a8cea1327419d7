"""What the store hands out and takes in: plain data, free of any database."""

from __future__ import annotations

from dataclasses import dataclass

from benchcore.verdict.ratios import Side


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

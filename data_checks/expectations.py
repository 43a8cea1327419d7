"""The expectations of the suites: Great Expectations' own, and ours where a plain sentence reads
better in Data Docs than one about columns."""

# Type checkers don't know that `gxe` exports expectations, as its manual shows.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import great_expectations.expectations as gxe
from great_expectations.expectations.expectation import Expectation


class ExpectStepsWithinCeilings(gxe.ExpectColumnValuesToBeBetween):
    """The column is the share of the device's ceilings that the fastest start used."""

    description: str | None = (
        "No step is faster than the device can be, by the compute and bandwidth ceilings that the "
        "sentinels measured."
    )


class ExpectProvenEqual(gxe.ExpectColumnValuesToBeInSet):
    """The column is what the proof concludes of a quantity."""

    description: str | None = (
        "A proof of the same workload, precision and weights shows that both sides compute the "
        "same function."
    )


class ExpectErrorWithinBound(gxe.ExpectColumnPairValuesAToBeGreaterThanB):
    """Column A is the bound, and B is the error, which the proof's own conclusion can't hide."""

    description: str | None = (
        "The error that the proof measured against the float64 reference is within its bound."
    )


def one_of(
    column: str, values: Iterable[object], name: str, reason: str, meaning: str = "", **more: Any
) -> Expectation:
    """`reason` is formatted with the columns of a failed row; the manual has the `meaning`."""
    meta = {"name": name, "reason": reason, "meaning": meaning or reason}
    return gxe.ExpectColumnValuesToBeInSet(column=column, value_set=list(values), meta=meta, **more)


def present(column: str, name: str, reason: str, **more: Any) -> Expectation:
    """The column is not null."""
    meta = {"name": name, "reason": reason}
    return gxe.ExpectColumnValuesToNotBeNull(column=column, meta=meta, **more)


def between(
    column: str, low: float | None, high: float | None, name: str, reason: str, **more: Any
) -> Expectation:
    """What is missing passes."""
    return gxe.ExpectColumnValuesToBeBetween(
        column=column, min_value=low, max_value=high, meta={"name": name, "reason": reason}, **more
    )


def at_least(column: str, other: str, name: str, reason: str, **more: Any) -> Expectation:
    """The column is not below the `other` one of its row."""
    meta = {"name": name, "reason": reason}
    return gxe.ExpectColumnPairValuesAToBeGreaterThanB(
        column_A=column, column_B=other, or_equal=True, meta=meta, **more
    )


WARNING: dict[str, Any] = {"severity": "warning"}
"""A failure is reported; its row still counts."""

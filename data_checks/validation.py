"""Runs a suite over its rows, and reads from the results which rows failed, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from great_expectations import Checkpoint, ValidationDefinition
from great_expectations.core import (
    ExpectationSuite,
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.core.batch_definition import BatchDefinition
from great_expectations.expectations.expectation import (
    ColumnMapExpectation,
    ColumnPairMapExpectation,
    Expectation,
)

from benchcore.store.records import FailedCheck, Severity

_COLUMNS = ("column", "column_A", "column_B")
_ALL_ROWS = {"result_format": "COMPLETE", "unexpected_index_column_names": ["row"]}


class CheckError(Exception):
    """A check could not run: an expectation raised, or gave no result. Never counts as passed."""


@dataclass(frozen=True)
class SuiteResult:
    """What a suite found in its rows: the rows that fail, and problems that belong to no row.

    `success` is False if a critical expectation failed.
    """

    failed_checks: list[FailedCheck]
    problems: list[str]
    num_rows: int
    success: bool
    found: ExpectationSuiteValidationResult


def can_fail(expectations: Iterable[Expectation], rows: pd.DataFrame) -> bool:
    """Whether a suite has anything to check: without rows only what it expects of the table."""
    of_rows = (ColumnMapExpectation, ColumnPairMapExpectation)
    return len(rows) > 0 or not all(isinstance(each, of_rows) for each in expectations)


def validate(
    definition: BatchDefinition, suite: ExpectationSuite, rows: pd.DataFrame
) -> SuiteResult:
    """Run a suite over its rows, by a Checkpoint of its name in the context of the batch's
    definition. Raises CheckError if an expectation could not run."""
    context = definition.data_asset.datasource.data_context
    # A Checkpoint gives one frame to all of its suites, and ours have rows of their own.
    checked = ValidationDefinition(
        name=suite.name, data=definition, suite=context.suites.add(suite)
    )
    checkpoint = Checkpoint(
        name=suite.name,
        validation_definitions=[context.validation_definitions.add(checked)],
        result_format=_ALL_ROWS,
    )
    given = {"dataframe": rows[_list_columns(suite, rows)]}
    run = context.checkpoints.add(checkpoint).run(batch_parameters=given)
    (found,) = run.run_results.values()
    if len(found.results) != len(suite.expectations):
        raise CheckError(
            f"wanted {len(suite.expectations)} results of suite {suite.name!r}, got "
            f"{len(found.results)}; check which version of great_expectations is installed"
        )
    failed_checks: list[FailedCheck] = []
    problems: list[str] = []
    for result in found.results:
        if failed := _failed_rows(result, suite.name):
            described = rows.iloc[failed].astype("object")
            records = described.where(described.notna(), None).to_dict("records")
            failed_checks += [_describe_failure(each, suite.name, result) for each in records]
        elif not result.success:
            problems.append(_problem(suite.name, result))
    success = all(each.success or _severity(each) != "critical" for each in found.results)
    return SuiteResult(failed_checks, problems, len(rows), success, found)


def _list_columns(suite: ExpectationSuite, rows: pd.DataFrame) -> list[str]:
    """The columns that the expectations name: Great Expectations copies all that it is given, for
    each expectation."""
    kwargs = [each.configuration.kwargs for each in suite.expectations]
    named = {str(each[key]) for each in kwargs for key in _COLUMNS if key in each}
    conditions = " ".join(str(each.get("row_condition", "")) for each in kwargs)
    return [each for each in rows.columns if each in {"row", *named} or each in conditions]


def _failed_rows(result: ExpectationValidationResult, suite: str) -> list[int]:
    """Numbers of the rows that fail an expectation. Raises CheckError if it could not run."""
    meta = _meta_of(result)
    raised = _exception_message(result.exception_info or {})
    if raised is not None:
        raise CheckError(f"{suite}: {meta['name']!r} could not be checked: {raised}")
    failed = [int(each["row"]) for each in result.result.get("unexpected_index_list") or ()]
    num_failed = result.result.get("unexpected_count", 0)
    if len(failed) != num_failed or (result.success and failed):
        raise CheckError(
            f"{suite}: {meta['name']!r} reports {num_failed} failed rows, success is "
            f"{result.success!r}, and names {len(failed)} of them"
        )
    return failed


def _exception_message(info: Mapping[str, Any]) -> str | None:
    """The exception of an expectation, or those of its metrics; None if there is none."""
    infos = [info] if "raised_exception" in info else list(info.values())
    messages = [str(each["exception_message"]) for each in infos if each["raised_exception"]]
    return "; ".join(messages) if messages else None


def _describe_failure(
    row: Mapping[str, Any], suite: str, result: ExpectationValidationResult
) -> FailedCheck:
    meta = _meta_of(result)
    return FailedCheck(
        duel_run=row["duel_run"],
        contender=row["contender"],
        other=row["other"],
        suite=suite,
        expectation=meta["name"],
        reason=meta["reason"].format(**{name: _shorten(value) for name, value in row.items()}),
        severity=_severity(result),
    )


def _severity(result: ExpectationValidationResult) -> Severity:
    config = result.expectation_config
    assert config is not None
    return "critical" if config.severity == "critical" else "warning"


def _shorten(value: object) -> object:
    """Round a number to four significant digits for the report; checks use the full value."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _problem(suite: str, result: ExpectationValidationResult) -> str:
    meta = _meta_of(result)
    value = result.result.get("observed_value")
    return f"{suite}: {meta['name']}: {meta['reason'].format(value=value)}"


def _meta_of(result: ExpectationValidationResult) -> Mapping[str, str]:
    config = result.expectation_config
    assert config is not None and config.meta is not None, "every expectation here has a name"
    return config.meta

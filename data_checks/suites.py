"""The suites of expectations, and running them over a campaign's rows."""

# Type checkers don't know that `gxe` exports expectations, as its manual shows.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from benchcore.store.records import FailedCheck
from benchcore.verdict.duel.physics import LIMIT_SHARE
from data_checks.defects import deliberate_rows, deliberate_suite
from data_checks.epochs import epoch_rows, epoch_suite
from data_checks.profiles import profile_rows, profile_suite
from data_checks.proofs import proof_rows, proof_suite
from data_checks.rows import (
    CheckFrames,
    contender_rows,
    describe,
    duel_rows,
    equivalence_rows,
    pair_rows,
    parity_rows,
    start_rows,
    unbounded_cases,
)

# Great Expectations reads this while it is imported.
os.environ["GX_ANALYTICS_ENABLED"] = "false"

import great_expectations as gx
import great_expectations.expectations as gxe
from great_expectations.core import ExpectationSuite, ExpectationValidationResult
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.datasource.fluent.interfaces import Batch
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.row_conditions import Column

_FINISHED = Column("status") == "ok"
FEWEST_CLOCK_STEPS = 1000
"""Shortest block in clock ticks, so that the clock's resolution is at most 0.1 % of the block."""
_MEASURED = Column("framework") != "stdlib"


class CheckError(Exception):
    """A check could not run: an expectation raised, or gave no answer. Never counts as passed."""


@dataclass(frozen=True)
class CheckReport:
    """The failed checks of rows, and failures that belong to no row (`problems`).

    `unbounded` lists the cases that physics could not fully check, with the reason. `checked`
    names the duel runs that were checked.
    """

    failed_checks: tuple[FailedCheck, ...]
    problems: tuple[str, ...]
    unbounded: tuple[str, ...]
    checked: frozenset[str]
    num_rows: int
    num_expectations: int
    success: bool


def run_checks(frames: CheckFrames) -> CheckReport:
    """Run all suites over a campaign's rows. Raises CheckError if a check could not run."""
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    # One asset for all suites: GX writes its whole configuration again for each that is added.
    asset = context.data_sources.add_pandas("campaign").add_dataframe_asset("rows of a suite")
    definition = asset.add_batch_definition_whole_dataframe("all rows")
    findings = []
    for suite, rows_of in _SUITES:
        rows = rows_of(frames)
        batch = definition.get_batch({"dataframe": rows})
        findings.append(_validate(batch, suite(), rows))
    return CheckReport(
        failed_checks=tuple(mark for each in findings for mark in each.failed_checks),
        problems=tuple(problem for each in findings for problem in each.problems),
        unbounded=unbounded_cases(frames),
        checked=frozenset(frames.contenders["duel_run"]),
        num_rows=sum(each.num_rows for each in findings),
        num_expectations=sum(each.num_expectations for each in findings),
        success=all(each.success for each in findings),
    )


def contender_suite() -> ExpectationSuite:
    """Every contender finished, with at least the planned number of starts."""
    return _suite(
        "contenders",
        gxe.ExpectTableRowCountToBeBetween(
            min_value=1, meta=describe("there are contenders", "wanted at least 1 row, got {value}")
        ),
        gxe.ExpectColumnValuesToBeInSet(
            column="status",
            value_set=["ok", "invalid_physics"],  # the physics suite reports it
            meta=describe("finished", "status is {status!r}, not 'ok'; stage {stage!r}: {reason}"),
        ),
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="num_starts",
            column_B="planned_starts",
            or_equal=True,
            row_condition=_FINISHED,
            meta=describe("all starts", "{num_starts} of at least {planned_starts} planned starts"),
        ),
    )


def physics_suite() -> ExpectationSuite:
    """No step is shorter than the ceilings that the campaign's sentinels measured allow."""
    return _suite(
        "physics",
        gxe.ExpectColumnValuesToBeBetween(
            column="limit_share",
            min_value=0,
            max_value=LIMIT_SHARE,
            meta=describe(
                "invalid_physics",
                "{name} is invalid_physics, {limit_share:.3g} times what the device can do: "
                "{limit_reason}",
            ),
        ),
    )


def start_suite() -> ExpectationSuite:
    """Every start of a finished contender ran all rounds, with valid times and known inputs."""
    return _suite(
        "starts",
        gxe.ExpectColumnValuesToBeInSet(
            column="status",
            value_set=["ok"],
            meta=describe("start finished", "start {start_index} has status {status!r}, not 'ok'"),
        ),
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="num_blocks",
            column_B="planned_rounds",
            or_equal=True,
            meta=describe(
                "all rounds",
                "start {start_index} has {num_blocks} blocks of at least {planned_rounds} planned "
                "rounds",
            ),
        ),
        gxe.ExpectColumnValuesToNotBeNull(
            column="compilations_in_blocks",
            meta=describe("compilations counted", "start {start_index} did not count compilations"),
        ),
        gxe.ExpectColumnValuesToBeInSet(
            column="compilations_in_blocks",
            value_set=[0],
            meta=describe(
                "nothing compiled while the clock ran",
                "start {start_index} compiled {compilations_in_blocks:.0f} times in timed blocks",
            ),
        ),
        *_time_expectations(),
        gxe.ExpectColumnValuesToBeBetween(
            column="clock_steps",
            min_value=FEWEST_CLOCK_STEPS,
            meta=describe(
                "blocks long enough for the clock",
                "start {start_index} has a block of {shortest_block_ns:.0f} ns, less than 1000 "
                "steps of its clock ({clock_resolution_ns:.0f} ns)",
            ),
        ),
        gxe.ExpectColumnValuesToNotBeNull(
            column="inputs_sha256",
            row_condition=_MEASURED,
            meta=describe(
                "inputs known", "start {start_index} did not say what inputs it worked on"
            ),
        ),
    )


def _time_expectations() -> tuple[Expectation, ...]:
    return (
        gxe.ExpectColumnValuesToNotBeNull(
            column="median_step_ns",
            row_condition=Column("disturbed") == "not throughout",
            meta=describe("timed", "start {start_index} has no time of a step"),
        ),
        gxe.ExpectColumnValuesToBeBetween(
            column="median_step_ns",
            min_value=0,
            strict_min=True,
            max_value=sys.float_info.max,
            meta=describe(
                "positive finite time", "start {start_index} took {median_step_ns!r} ns a step"
            ),
        ),
    )


def duel_suite() -> ExpectationSuite:
    """All contenders of a duel worked on the same input bytes."""
    return _suite(
        "duels",
        gxe.ExpectColumnValuesToBeBetween(
            column="num_inputs",
            max_value=1,
            meta=describe(
                "same inputs", "contenders worked on {num_inputs} different inputs, not 1"
            ),
        ),
    )


def pair_suite() -> ExpectationSuite:
    """Every pair was compared: a missing proof is a failure."""
    return _suite(
        "pairs",
        gxe.ExpectColumnPairValuesToBeEqual(
            column_A="num_quantities",
            column_B="wanted_quantities",
            meta=describe(
                "proof complete",
                "{num_quantities} of {wanted_quantities} quantities compared between {contender!r} "
                "and {other!r}",
            ),
        ),
    )


def equivalence_suite() -> ExpectationSuite:
    """Every compared pair agrees. The numbers are checked as well: `agrees` is only a claim."""
    return _suite(
        "equivalence",
        gxe.ExpectColumnValuesToBeInSet(
            column="agrees",
            value_set=[True],
            meta=describe("agrees", "{quantity!r} differs: {max_relative!r} against {tolerance!r}"),
        ),
        gxe.ExpectColumnValuesToNotBeNull(
            column="max_relative",
            meta=describe("compared", "{quantity!r} could not be compared"),
        ),
        gxe.ExpectColumnValuesToBeBetween(
            column="max_relative",
            min_value=0,
            max_value=sys.float_info.max,
            meta=describe("finite difference", "{quantity!r} differs by {max_relative!r}"),
        ),
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A="tolerance",
            column_B="max_relative",
            or_equal=True,
            ignore_row_if="either_value_is_missing",
            meta=describe(
                "within tolerance",
                "{quantity!r} differs by {max_relative!r}, above its tolerance {tolerance!r}",
            ),
        ),
    )


def parity_suite() -> ExpectationSuite:
    """Both sides ran with the same settings, except those that their arms compare."""
    return _suite(
        "parity",
        gxe.ExpectColumnValuesToBeInSet(
            column="differs",
            value_set=[""],
            meta=describe("ran alike", "the two sides had different settings: {differs}"),
        ),
    )


_SUITES: tuple[
    tuple[Callable[[], ExpectationSuite], Callable[[CheckFrames], pd.DataFrame]], ...
] = (
    (contender_suite, contender_rows),
    (physics_suite, contender_rows),
    (start_suite, start_rows),
    (duel_suite, duel_rows),
    (pair_suite, pair_rows),
    (equivalence_suite, equivalence_rows),
    (parity_suite, parity_rows),
    (profile_suite, profile_rows),
    (proof_suite, proof_rows),
    (deliberate_suite, deliberate_rows),
    (epoch_suite, epoch_rows),
)


def _suite(name: str, *expectations: Expectation) -> ExpectationSuite:
    return ExpectationSuite(name=f"nightly {name}", expectations=list(expectations))


@dataclass(frozen=True)
class _SuiteResult:
    failed_checks: list[FailedCheck]
    problems: list[str]
    num_rows: int
    num_expectations: int
    success: bool


def _validate(batch: Batch, suite: ExpectationSuite, rows: pd.DataFrame) -> _SuiteResult:
    found = batch.validate(
        suite,
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["row"]},
    )
    if len(found.results) != len(suite.expectations):
        raise CheckError(
            f"wanted {len(suite.expectations)} answers of suite {suite.name!r}, got "
            f"{len(found.results)}; check which version of great_expectations is installed"
        )
    failed_checks: list[FailedCheck] = []
    problems: list[str] = []
    records = rows.astype("object").where(rows.notna(), None).to_dict("records")
    for result in found.results:
        failed = _failed_rows(result, suite.name)
        failed_checks += [_describe_failure(records[row], suite.name, result) for row in failed]
        if not result.success and not failed:
            problems.append(_problem(suite.name, result))
    return _SuiteResult(failed_checks, problems, len(rows), len(found.results), bool(found.success))


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
    )


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

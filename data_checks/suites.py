"""The table of expectations, and running it over a campaign's rows."""

# Type checkers don't know that `gxe` exports expectations, as its manual shows.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import great_expectations as gx
import great_expectations.expectations as gxe
import pandas as pd
from great_expectations.core import ExpectationSuite
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.row_conditions import Column

from benchcore.store.records import FailedCheck
from benchcore.verdict.duel.physics import LIMIT_SHARE
from benchcore.verdict.duel.products import CHECKS, MEANINGS, REPORTED
from benchcore.verdict.duel.step_profile import GRAPHS
from data_checks.data_docs import write_data_docs
from data_checks.expectations import (
    WARNING,
    ExpectErrorWithinBound,
    ExpectProvenEqual,
    ExpectStepsWithinCeilings,
    at_least,
    between,
    one_of,
    present,
)
from data_checks.rows import (
    LIMIT_Z,
    CheckFrames,
    contender_rows,
    continuity_rows,
    deliberate_rows,
    duel_rows,
    epoch_rows,
    equivalence_rows,
    fresh_rows,
    pair_rows,
    parity_rows,
    planned_rows,
    product_rows,
    profile_rows,
    proof_rows,
    start_rows,
    time_rows,
    unbounded_cases,
    unjudged_rows,
)
from data_checks.validation import can_fail, validate

FEWEST_CLOCK_STEPS = 1000
"""Shortest block in clock ticks, so that the clock's resolution is at most 0.1 % of the block."""


@dataclass(frozen=True)
class CheckReport:
    """The failed checks of rows, and failures that belong to no row (`problems`), as of a planned
    duel without a result.

    `unbounded` lists the cases that physics could not fully check, with the reason. `checked`
    names the duel runs that were checked.
    """

    failed_checks: tuple[FailedCheck, ...]
    problems: tuple[str, ...]
    unbounded: tuple[str, ...]
    checked: frozenset[str]
    num_rows: int
    success: bool


def run_checks(frames: CheckFrames, docs: Path | None = None) -> CheckReport:
    """Run all suites over a campaign's rows, and write their Data Docs into the folder `docs`.

    Raises CheckError if a check could not run.
    """
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    # One asset for all suites: GX writes its whole configuration again for each that is added.
    asset = context.data_sources.add_pandas("campaign").add_dataframe_asset("rows of a suite")
    definition = asset.add_batch_definition_whole_dataframe("all rows")
    findings, without_rows = [], []
    made = cache(lambda rows_of: rows_of(frames))  # of one table for several suites
    for name, rows_of, expectations in list_suites():
        rows = made(rows_of)
        if not can_fail(expectations, rows):
            without_rows.append(f"nightly {name}")
            continue
        suite = ExpectationSuite(name=f"nightly {name}", expectations=expectations)
        findings.append(validate(definition, suite, rows))
    if docs is not None:
        found = {str(each.found.suite_name): each.found for each in findings}
        write_data_docs(docs, found, without_rows)
    checked = frozenset(frames.contenders["duel_run"])
    failed = [check for each in findings for check in each.failed_checks]
    missing = [
        f"{each.expectation}: {each.reason}" for each in failed if each.duel_run not in checked
    ]
    return CheckReport(
        failed_checks=tuple(each for each in failed if each.duel_run in checked),
        problems=(*missing, *(problem for each in findings for problem in each.problems)),
        unbounded=unbounded_cases(frames),
        checked=checked,
        num_rows=sum(each.num_rows for each in findings),
        success=all(each.success for each in findings),
    )


_SEVERITIES: dict[str, dict[str, Any]] = dict.fromkeys(REPORTED, WARNING)
_Suite = tuple[str, Callable[[CheckFrames], pd.DataFrame], list[Expectation]]


def list_suites() -> Iterator[_Suite]:
    """Name, rows and expectations of every suite."""
    yield (
        "contenders",
        contender_rows,
        [
            gxe.ExpectTableRowCountToBeBetween(
                min_value=1,
                meta={
                    "name": "there are contenders",
                    "reason": "wanted at least 1 row, got {value}",
                },
            ),
            one_of(
                "status",
                ["ok", "invalid_physics"],  # the physics suite reports it
                "finished",
                "{ended}: {reason}",
            ),
            at_least(
                "num_starts",
                "planned_starts",
                "all starts",
                "{num_starts} of at least {planned_starts} planned starts",
                row_condition=Column("status") == "ok",
            ),
        ],
    )
    received = ("planned duels received", "{title} was planned, but has no result")
    yield "completeness", planned_rows, [one_of("came", [True], *received)]
    yield "times", time_rows, [*_list_of_times()]
    yield "freshness", fresh_rows, [*_list_of_freshness()]
    too_fast = "{name} is invalid_physics, {limit_share:.3g} times what the device can do: "
    possible = ExpectStepsWithinCeilings(
        column="limit_share",
        min_value=0,
        max_value=LIMIT_SHARE,
        meta={"name": "invalid_physics", "reason": f"{too_fast}{{limit_reason}}"},
    )
    yield "physics", contender_rows, [possible]
    unknown = "its step can't be compared with ceilings: none was measured, or they are void"
    judged = one_of("unjudged", [""], "physics judged", "{unjudged}", unknown)
    yield "judged physics", unjudged_rows, [judged]
    yield "starts", start_rows, [*_list_of_starts()]
    unseen = "start {start_index} has blocks without counters of disturbances ({unwatched})"
    watched = one_of("unwatched", [""], "disturbances counted", unseen, **WARNING)
    yield "telemetry", start_rows, [watched]
    far = "step time {step_ms:g} ms differs from its median of {num_earlier:g} earlier duel runs "
    far += "({median_ms:g} ms) by a factor of {times_median:.3g}; the limit is {far:.3g}"
    continuous = at_least("far", "times_median", "near its own past", far, **WARNING)
    yield "continuity", continuity_rows, [continuous]
    inputs = ("same inputs", "contenders worked on {num_inputs} different inputs, not 1")
    own = ("inputs of each seed", "{num_seeds} seeds gave {num_own} different inputs")
    seeds = [between("num_inputs", None, 1, *inputs), at_least("num_own", "num_seeds", *own)]
    yield "duels", duel_rows, seeds
    yield (
        "pairs",
        pair_rows,
        [
            gxe.ExpectColumnPairValuesToBeEqual(
                column_A="num_quantities",
                column_B="wanted_quantities",
                meta={
                    "name": "proof complete",
                    "reason": "{num_quantities} of {wanted_quantities} quantities compared between "
                    "{contender!r} and {other!r}",
                },
            )
        ],
    )
    yield "equivalence", equivalence_rows, [*_list_of_equivalence()]
    same = ("same settings", "the two sides had different settings: {differs}")
    products = [
        one_of(key, [""], CHECKS[key], f"{{{key}}}", MEANINGS[key], **_SEVERITIES.get(key, {}))
        for key in CHECKS
    ]
    yield "products", product_rows, [*products]
    yield "parity", parity_rows, [one_of("differs", [""], *same)]
    yield "profiles", profile_rows, [*_list_of_profiles()]
    yield "proofs", proof_rows, [*_list_of_proofs()]
    right = ("not wrong on purpose", "{name} is wrong on purpose: {wrong}")
    yield "deliberate", deliberate_rows, [one_of("wrong", [""], *right)]
    learnt = "{correct_a:g} and {correct_b:g} of {num_val} validation images are classified "
    learnt += f"correctly: a difference of {{apart_z:.1f}} standard errors, above {LIMIT_Z}"
    yield "epochs", epoch_rows, [between("apart_z", 0, LIMIT_Z, "same accuracy", learnt)]


_CLOCKS_S = 300.0
"""By how much the clocks of a node and of the database's machine may differ."""


def _list_of_times() -> Iterator[Expectation]:
    """A duel's own clock was not set meanwhile, and no block is counted twice."""
    yield at_least(
        "wall_s",
        "blocks_s",
        "blocks fit into the duel",
        "its blocks take {blocks_s:.1f} s or more, and the whole duel {wall_s:.1f} s",
    )
    yield between(
        "outside_s",
        None,
        1,
        "starts within the duel",
        "a start began {outside_s:.1f} s before the duel or after it",
    )
    yield between(
        "age_s",
        -_CLOCKS_S,
        None,
        "not from the future",
        "it ended {age_s:.0f} s before its document was ingested",
    )


_NIGHT_H = 36.0
"""A night, with the rerun that completes it the next day."""
_PASSES_DAYS = 7.0


def _list_of_freshness() -> Iterator[Expectation]:
    """What a night shows was measured in that night, and its passes in that week."""
    yield between(
        "behind_h",
        None,
        _NIGHT_H,
        "measured with its campaign",
        f"it ended {{behind_h:.0f}} h before the newest duel of its campaign, more than "
        f"{_NIGHT_H:g} h",
        **WARNING,
    )
    yield between(
        "passes_days",
        None,
        _PASSES_DAYS,
        "passes of the last week",
        "its memory, profile and energy were measured {passes_days:.1f} days before it, more than "
        f"{_PASSES_DAYS:g}",
        **WARNING,
    )


def _list_of_starts() -> Iterator[Expectation]:
    """Every start of a finished contender ran all rounds, with valid times and known inputs."""
    yield one_of("status", ["ok"], "start finished", "start {start_index} {ended}")
    yield at_least(
        "num_blocks",
        "planned_rounds",
        "all rounds",
        "start {start_index} has {num_blocks} blocks of at least {planned_rounds} planned rounds",
    )
    yield present(
        "compilations_in_blocks",
        "compilations counted",
        "start {start_index} did not count compilations",
    )
    yield one_of(
        "compilations_in_blocks",
        [0],
        "nothing compiled while the clock ran",
        "start {start_index} compiled {compilations_in_blocks:.0f} times in timed blocks",
    )
    yield present(
        "median_step_ns",
        "timed",
        "start {start_index} has no time of a step",
        row_condition=Column("disturbed") == "not throughout",
    )
    yield between(
        "median_step_ns",
        0,
        sys.float_info.max,
        "positive finite time",
        "start {start_index} reports {median_step_ns!r} ns per step",
        strict_min=True,
    )
    yield between(
        "clock_steps",
        FEWEST_CLOCK_STEPS,
        None,
        "blocks long enough for the clock",
        "start {start_index} has a block of {shortest_block_ns:.0f} ns, less than 1000 "
        "ticks of its clock ({clock_resolution_ns:.0f} ns)",
    )
    for counter in ("process_peak_bytes", "allocator_peak_bytes"):
        yield between(
            counter,
            1,
            None,
            f"{counter} above zero",
            f"start {{start_index}} reports {{{counter}}} bytes; a missing counter must be null",
        )
    yield present(
        "inputs_sha256",
        "inputs known",
        "start {start_index} did not report its inputs",
        row_condition=Column("framework") != "stdlib",
    )


def _list_of_equivalence() -> Iterator[Expectation]:
    """Every compared pair agrees. The numbers are checked as well: `agrees` is only a claim."""
    yield one_of(
        "agrees",
        [True],
        "agrees",
        "{quantity!r} differs by {max_relative!r} (tolerance {tolerance!r})",
    )
    yield present("max_relative", "compared", "{quantity!r} could not be compared")
    yield between(
        "max_relative",
        0,
        sys.float_info.max,
        "finite difference",
        "{quantity!r} differs by {max_relative!r}",
    )
    yield at_least(
        "tolerance",
        "max_relative",
        "within tolerance",
        "{quantity!r} differs by {max_relative!r}, above its tolerance {tolerance!r}",
        ignore_row_if="either_value_is_missing",
    )


def _list_of_profiles() -> Iterator[Expectation]:
    """A step waits for no value, copies nothing from the host, calls no module system, records no
    autograd graph for inference, and launches the graphs it reports. What is null passes."""
    yield one_of("unlike_graphs", [""], "graphs as reported", "{unlike_graphs}", GRAPHS)
    waits = "each step waits for {host_syncs:.3g} values"
    yield between("host_syncs", None, 0, "no wait within a step", waits)
    copies = "each step takes {host_copies:.3g} arrays from the host"
    yield between("host_copies", None, 0, "inputs on the device", copies)
    yield between(
        "module_calls",
        None,
        0,
        "no module in a compiled step",
        "each step calls {module_calls:.0f} functions of Flax; give jax.jit plain arrays",
        row_condition=Column("framework") == "jax",
    )
    yield one_of(
        "grad_mode",
        ["inference_mode"],
        "inference keeps no graph",
        "inference ran in torch's {grad_mode}, not in inference_mode",
        row_condition=Column("use_case") == "infer",
    )


def _list_of_proofs() -> Iterator[Expectation]:
    """The float64 references are one function, and each side's error is within its bound, also by
    the numbers: `passed` is only a claim."""
    reason = "not proven to compute the same: {reason}"
    meta = {"name": "proven equal", "reason": reason}
    yield ExpectProvenEqual(column="passed", value_set=[True], meta=meta)
    for of in ("reference", "a", "b"):
        reason = f"{{quantity!r}}: error {{{of}_error!r}} is not within its bound {{{of}_bound!r}}"
        yield ExpectErrorWithinBound(
            column_A=f"{of}_bound",
            column_B=f"{of}_error",
            or_equal=True,
            meta={"name": f"{of} within bound", "reason": reason},
            row_condition=Column("passed") == True,  # noqa: E712 - a row condition
            ignore_row_if="neither",
        )

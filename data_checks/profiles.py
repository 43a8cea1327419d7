"""Check that profiled steps only enqueue work on data that is on the device."""

# Type checkers don't know that `gxe` exports expectations, as its manual shows.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from data_checks.rows import CheckFrames, describe, name_rows

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuite


def profile_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per profiled contender."""
    return name_rows(frames.profiles, contender="name")


def profile_suite() -> ExpectationSuite:
    """A step waits for no value, copies nothing from the host, calls no module system around
    compiled code, and records no autograd graph for inference.

    What a profiler can't measure is null, and passes.
    """
    import great_expectations.expectations as gxe
    from great_expectations.core import ExpectationSuite
    from great_expectations.expectations.row_conditions import Column

    expectations = [
        gxe.ExpectColumnValuesToBeBetween(
            column="host_syncs",
            max_value=0,
            meta=describe("no wait within a step", "each step waits for {host_syncs:.3g} values"),
        ),
        gxe.ExpectColumnValuesToBeBetween(
            column="host_copies",
            max_value=0,
            meta=describe(
                "inputs on the device", "each step takes {host_copies:.3g} arrays from the host"
            ),
        ),
        gxe.ExpectColumnValuesToBeBetween(
            column="module_calls",
            max_value=0,
            row_condition=Column("framework") == "jax",
            meta=describe(
                "no module in a compiled step",
                "each step calls {module_calls:.0f} functions of Flax; jit what its state is given",
            ),
        ),
        gxe.ExpectColumnValuesToBeInSet(
            column="grad_mode",
            value_set=["inference_mode"],
            row_condition=Column("use_case") == "infer",
            meta=describe("inference keeps no graph", "inference ran in torch's {grad_mode}"),
        ),
    ]
    return ExpectationSuite(name="nightly profiles", expectations=expectations)

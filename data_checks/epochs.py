"""Whether the two sides of a training duel learnt the same."""

# `gxe` is where its manual imports expectations from; it does not say so to type checkers.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from benchcore.verdict.accuracy import LIMIT_Z, accuracy_z
from data_checks.rows import CheckFrames, list_pairs, name_rows

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuite

_COLUMNS = ["duel_run", "a", "b", "correct_a", "correct_b", "num_val", "apart_z"]


def epoch_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row a pair that trained on images: how far apart its accuracies are after the last
    epoch, in standard errors."""
    last = {
        (each["duel_run"], each["name"]): each
        for each in frames.epochs.sort_values("epoch").to_dict("records")
    }
    rows = []
    for duel_run, a, b in list_pairs(frames.contenders):
        if (duel_run, a) in last and (duel_run, b) in last:
            one, other = last[duel_run, a], last[duel_run, b]
            correct, num_val = (one["correct"], other["correct"]), int(one["num_val"])
            rows.append([duel_run, a, b, *correct, num_val, accuracy_z(*correct, num_val)])
    return name_rows(pd.DataFrame(rows, columns=_COLUMNS), contender="a", other="b")


def epoch_suite() -> ExpectationSuite:
    """Accuracies on the same images differ by no more than chance explains."""
    import great_expectations.expectations as gxe
    from great_expectations.core import ExpectationSuite

    close = gxe.ExpectColumnValuesToBeBetween(
        column="apart_z",
        min_value=0,
        max_value=LIMIT_Z,
        meta={
            "name": "learnt the same",
            "reason": "{correct_a:g} and {correct_b:g} of {num_val} validation images are right, "
            f"{{apart_z:.1f}} standard errors apart, of at most {LIMIT_Z}",
        },
    )
    return ExpectationSuite(name="nightly epochs", expectations=[close])

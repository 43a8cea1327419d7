"""Whether a contender was meant to be right: a defect study's are kept out of every ratio."""

# `gxe` is where its manual imports expectations from; it does not say so to type checkers.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from benchcore.protocol import DEFECT_TRACK
from benchcore.workloads.settings import DEFECTS
from data_checks.rows import CheckFrames, describe, name_rows

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuite


def deliberate_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row a contender: `wrong` says what is wrong with it, or with its duel, on purpose.

    Whoever is set to a defect is told so in any track, and of a study's duel everyone: its fair
    pair is there to be compared with, and is raced elsewhere.
    """
    defects = {
        (each["duel_run"], each["name"]): each["settings"][DEFECTS]
        for each in frames.manifests.to_dict("records")
        if DEFECTS in each["settings"]
    }
    wrong = [
        defects.get(
            (each["duel_run"], each["name"]),
            "played in a defect study" if each["track"] == DEFECT_TRACK else "",
        )
        for each in frames.contenders.to_dict("records")
    ]
    return name_rows(
        frames.contenders.assign(wrong=pd.Series(wrong, dtype="object")), contender="name"
    )


def deliberate_suite() -> ExpectationSuite:
    """Nobody was wrong on purpose."""
    import great_expectations.expectations as gxe
    from great_expectations.core import ExpectationSuite

    expectation = gxe.ExpectColumnValuesToBeInSet(
        column="wrong",
        value_set=[""],
        meta=describe("meant to be right", "{name} is wrong on purpose: {wrong}"),
    )
    return ExpectationSuite(name="nightly deliberate", expectations=[expectation])

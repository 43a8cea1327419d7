"""Whether a contender was meant to be right: a defect study's are kept out of every ratio."""

# `gxe` is where its manual imports expectations from; it does not say so to type checkers.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchcore.protocol import CALIBRATION_TRACK, DEFECT_TRACK
from benchcore.workloads.settings import DEFECTS, HANDICAP
from data_checks.rows import CheckFrames, describe, name_rows

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuite


def deliberate_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row a contender: `wrong` says what is wrong with it, or with its duel, on purpose.

    Whoever is set to a defect is told so in any track, and of a study's duel everyone: its fair
    pair is there to be compared with, and is raced elsewhere. Whoever is slowed down may be so in
    a trial of our verdicts, and nowhere else.
    """
    settings = {
        (each["duel_run"], each["name"]): each["settings"]
        for each in frames.manifests.to_dict("records")
    }
    wrong = [
        _tell_wrong(settings.get((each["duel_run"], each["name"]), {}), str(each["track"]))
        for each in frames.contenders.to_dict("records")
    ]
    return name_rows(
        frames.contenders.assign(wrong=pd.Series(wrong, dtype="object")), contender="name"
    )


def _tell_wrong(settings: Mapping[str, Any], track: str) -> str:
    if DEFECTS in settings:
        return settings[DEFECTS]
    if HANDICAP in settings and track != CALIBRATION_TRACK:
        return f"slowed down by {settings[HANDICAP]} %"
    return "played in a defect study" if track == DEFECT_TRACK else ""


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

"""Exclude contenders that are wrong on purpose, in defect studies and calibration runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from benchcore.protocol import CALIBRATION_TRACK, DEFECT_TRACK
from benchcore.workloads.settings import DEFECTS, INJECTED_SLOWDOWN
from data_checks.rows import CheckFrames, name_rows


def deliberate_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per contender: `wrong` names what is wrong with it, or its duel, on purpose.

    A defect in the settings excludes a contender on any track. A defect study excludes all its
    contenders. An injected slow-down is allowed only in calibration runs.
    """
    settings = {
        (each["duel_run"], each["name"]): each["settings"]
        for each in frames.manifests.to_dict("records")
    }
    wrong = [
        _describe_defect(settings.get((each["duel_run"], each["name"]), {}), str(each["track"]))
        for each in frames.contenders.to_dict("records")
    ]
    return name_rows(
        frames.contenders.assign(wrong=pd.Series(wrong, dtype="object")), contender="name"
    )


def _describe_defect(settings: Mapping[str, Any], track: str) -> str:
    if DEFECTS in settings:
        return settings[DEFECTS]
    if INJECTED_SLOWDOWN in settings and track != CALIBRATION_TRACK:
        return f"slowed down by {settings[INJECTED_SLOWDOWN]} %"
    return "played in a defect study" if track == DEFECT_TRACK else ""

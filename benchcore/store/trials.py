"""Trials of our own verdicts: their pairs say nothing of a framework, so they are in no series, no
ratio, no suspicion and on no page but that of the calibration."""

from __future__ import annotations

import pandas as pd

from benchcore.protocol import CALIBRATION_TRACK
from benchcore.store.models import DuelRun

IS_TRIAL = DuelRun.track == CALIBRATION_TRACK
NO_TRIAL = DuelRun.track != CALIBRATION_TRACK


def without_trials(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a frame that has a column `track`, less those of trials."""
    return frame.loc[frame["track"] != CALIBRATION_TRACK].reset_index(drop=True)

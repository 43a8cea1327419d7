"""Measure more calibration runs, with a known answer, besides those that nights measure."""

from __future__ import annotations

import time
from dataclasses import replace

from benchcore.errors import UserError
from benchcore.experiments.rounds import Measurer, RunContext
from benchcore.running.plans import draft_plan
from benchcore.verdict.confirmation.error_rates import STARTS


def run_calibration(count: int, context: RunContext, measurer: Measurer) -> None:
    """Measure `count` more calibration runs in a separate campaign. Raises UserError."""
    profile = context.profile
    if not profile.calibration_matches:
        raise UserError(
            f"wanted a profile with calibration runs, got {profile.name!r}, which has none; choose "
            "laptop or h100"
        )
    first = int(time.time())  # larger than the numbers of any night
    plan = draft_plan(
        replace(profile, matches=()),
        site=context.site,
        campaign=f"calibration-{first}",
        calibration=range(first * STARTS, (first + count) * STARTS),
    )
    measurer.measure(plan, f"{count} calibration runs")

"""The measuring layer of a night as a program, without Prefect: `python -m flows.chaos.night STATE
CAMPAIGN`. It costs a twentieth of a whole command."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from benchcore.errors import CampaignIncompleteError, EnvironmentBuildError
from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import STDLIB
from benchcore.protocol import DuelLimits
from benchcore.running.duel_process import ConductorFailedError
from benchcore.running.duels import measure_duel
from benchcore.running.plans import draft_plan, load_campaign
from benchcore.state import State, open_state
from benchcore.store.database import is_disk_full, open_database
from benchcore.store.incoming.ingest import ingest_spool
from flows.cli.boundary import end_with

CAMPAIGN = "chaos"
_LIMITS = DuelLimits(
    starts=1,
    compilations=1,
    rounds=4,
    block_ms=20.0,
    warm_up_limit_s=0.1,
    prepare_timeout_s=20.0,
    block_timeout_s=5.0,
    passes=False,
)


def draft_chaos(site: str = "local", num: int = 2) -> Plan:
    """Duels of the workload `noop`: one with two contenders, and others with one."""
    sides = [(STDLIB, STDLIB), *[(STDLIB,)] * (num - 1)]
    matches = tuple(
        Match(
            workload="noop",
            case="bare",
            arms=arms,
            expected_s=1,
            limits=replace(_LIMITS, budget_s=_LIMITS.budget_s + number),  # each its own duel
        )
        for number, arms in enumerate(sides)
    )
    profile = Profile(name="chaos", matches=matches, limits=_LIMITS)
    return draft_plan(profile, site=site, campaign=CAMPAIGN)


def measure_night(state: State, campaign: str) -> None:
    """Measure what is missing of a planned campaign, and ingest. Raises CampaignIncompleteError at
    the end if a duel has no result."""
    plan = load_campaign(state, campaign)
    lost = [reason for duel in plan.duels if (reason := _measure(plan, duel, state))]
    report = ingest_spool(open_database(state.database_url), state)
    lost += [f"{each.path}: {each.reason}" for each in report.rejected]
    if lost:
        raise CampaignIncompleteError("\n".join(lost))


def _measure(plan: Plan, duel: PlannedDuel, state: State) -> str | None:
    """Why a duel has no result. As the task around it, it tries a failed conductor once more."""
    try:
        try:
            measure_duel(plan, duel, state)
        except (ConductorFailedError, EnvironmentBuildError):
            measure_duel(plan, duel, state)
    except Exception as error:
        if is_disk_full(error):
            raise
        return f"{duel.title}: {error}"
    return None


def main(root: str, campaign: str) -> None:
    """Measure it as the command line does: an error ends in one paragraph."""
    try:
        measure_night(open_state(Path(root)), campaign)
    except Exception as error:  # noqa: BLE001 - the boundary
        end_with(error)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Confirm suspicions by themselves: what `deadheat confirm` does, as a flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.alerts import find_webhook
from benchcore.errors import UserError
from benchcore.profiles import load_profile
from benchcore.state import default_root, open_state
from benchcore.verdict.confirmation import LADDER
from flows.commands.confirm import Confirmation, check_ladder, climb
from flows.running import check_site
from tasks.form import ConfirmMinutes, ProfileName, SiteName, Starts, SuspicionIds

_SHOWN = ("suspicion", "series", "verdict", "culprit", "starts", "reason")


@flow(name="confirm", validate_parameters=True)
def confirm(
    suspicions: SuspicionIds | None = None,
    budget_minutes: ConfirmMinutes = 60,
    starts: Starts | None = None,
    profile: ProfileName = "laptop",
    site: SiteName = "local",
) -> RunState[Any]:
    """Measure what was suspected again, old environments against new, and say which framework
    moved.

    Args:
        suspicions: Their numbers, as `deadheat suspicions` lists them; without any, all that are
            open, the largest first.
        budget_minutes: Minutes, after which no suspicion is begun.
        starts: Numbers of starts to judge after, each larger than the one before; without any,
            5, 8 and 12.
        profile: How it is measured; what is measured, the suspicions say.
        site: Where.
    """
    state = open_state(default_root())
    try:
        check_site(site)
        find_webhook()
        order = Confirmation(
            suspicions=tuple(suspicions or ()),
            ladder=check_ladder(starts or LADDER),
            budget_s=60 * budget_minutes,
            profile=load_profile(profile),
            site=site,
        )
        rows, untold = climb(order, state, lambda measure, state, name: measure())
    except UserError as error:
        return Failed(message=str(error))
    if rows:
        table = [{name: row[name] for name in _SHOWN} for row in rows]
        create_table_artifact(key="confirmation", table=table, description=_count(rows))
    if untold:
        return Failed(message="; ".join(untold))
    return Completed(message=_count(rows))


def _count(rows: Sequence[Mapping[str, Any]]) -> str:
    """'2 suspicions: 1 confirmed, 1 open'."""
    verdicts = [str(row["verdict"]) for row in rows]
    counted = ", ".join(f"{verdicts.count(each)} {each}" for each in sorted({*verdicts}))
    return f"{len(rows)} suspicions: {counted}" if rows else "no suspicion is open"

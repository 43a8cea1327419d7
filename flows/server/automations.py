"""Our automations: what a Prefect server does by itself when runs fail, stop or are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from prefect.automations import (
    AutomationCore,
    CallWebhook,
    ChangeFlowRunState,
    EventTrigger,
    Posture,
    ResourceSpecification,
    RunDeployment,
)
from prefect.client.schemas.objects import StateType

from benchcore.experiments.alerting.alerts import template_failed_night, template_missing_night
from flows.confirm import confirm
from flows.measure_shard import measure_shard
from flows.nightly import nightly
from tasks.campaign_run import VOID
from tasks.server.apply import Targets
from tasks.server.prefect_server import TAG

MISSING = "deadheat: missing nights"
HEARTBEAT_S = 60
"""Seconds between the heartbeats of a run."""
HEARTBEAT_LIMIT = timedelta(minutes=5)
"""A run without a heartbeat for this long has crashed."""
_LATE = timedelta(hours=2)
"""Added to the longest time between two nights, before one counts as missing."""
_NUM_NIGHTS = 40
_HEARTBEAT = "prefect.flow-run.heartbeat"
_ENDS = ("Completed", "Failed", "TimedOut", "Crashed", "Cancelled", "Suspended", VOID)
"""The last events of a run. Any other state change proves nothing about its process: it may be
caused after its machine has gone."""
_RUNS = ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"})
_OF_NIGHT = ResourceSpecification(
    {"prefect.resource.role": "deployment", "prefect.resource.name": nightly.name}
)
_OURS = ResourceSpecification(
    {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"}
)
_NO_SHARD = ResourceSpecification(
    {"prefect.resource.role": "flow", "prefect.resource.name": f"!{measure_shard.name}"}
)
"""A shard is silent while Slurm suspends its job. Its worker knows whether the job has ended."""


def compute_missing_after(cron: str, timezone: str) -> timedelta:
    """How long after a night the next counts as missing: 26 hours for one per day."""
    from prefect.server.schemas.schedules import CronSchedule

    schedule = CronSchedule(cron=cron, timezone=timezone)
    nights = asyncio.run(schedule.get_dates(n=_NUM_NIGHTS, start=datetime.now(UTC)))
    gaps = [later - earlier for earlier, later in pairwise(nights)]
    return max(gaps, default=timedelta(days=366)) + _LATE


def list_automations(
    targets: Targets, *, missing_after: timedelta, limit: timedelta = HEARTBEAT_LIMIT
) -> list[AutomationCore]:
    """All automations; those that post an alert only if there is a webhook."""
    return list(_list(targets, missing_after, limit))


def _list(targets: Targets, missing_after: timedelta, limit: timedelta) -> Iterator[AutomationCore]:
    yield AutomationCore(
        name="deadheat: zombie runs",
        description=(
            f"A run without a heartbeat for {_format_span(limit)} is set to Crashed, which frees "
            "its slot in the pool. Start it again to resume. Shards are left to their worker."
        ),
        tags=[TAG],
        trigger=EventTrigger(
            match=_RUNS,
            match_related=[_OURS, _NO_SHARD],
            for_each={"prefect.resource.id"},
            after={_HEARTBEAT},
            expect={_HEARTBEAT, *(f"prefect.flow-run.{end}" for end in _ENDS)},
            posture=Posture.Proactive,
            threshold=1,
            within=limit,
        ),
        actions=[
            ChangeFlowRunState(
                name=None,
                state=StateType.CRASHED,
                force=False,
                message=f"no heartbeat for {_format_span(limit)}; start it again to resume",
            )
        ],
    )
    yield AutomationCore(
        name="deadheat: confirm suspicions",
        description="Measures suspicions again that a night leaves open.",
        tags=[TAG],
        trigger=EventTrigger(expect={"deadheat.suspicions.open"}, posture=Posture.Reactive),
        actions=[
            RunDeployment(
                source="selected",
                deployment_id=targets.deployments[f"{confirm.name}/{confirm.name}"],
                parameters=None,
                job_variables=None,
            )
        ],
    )
    if targets.webhook is None:
        return
    yield AutomationCore(
        name="deadheat: failed nights",
        description="Posts failed and crashed nights to the webhook. Void nights send an alert.",
        tags=[TAG],
        trigger=EventTrigger(
            match=ResourceSpecification(
                {
                    **_RUNS.root,
                    "prefect.state-type": ["FAILED", "CRASHED"],
                    "prefect.state-name": f"!{VOID}",
                }
            ),
            match_related=_OF_NIGHT,
            expect={"prefect.flow-run.*"},
            posture=Posture.Reactive,
        ),
        actions=[
            CallWebhook(
                block_document_id=targets.webhook,
                payload=template_failed_night(),
            )
        ],
    )
    yield AutomationCore(
        name=MISSING,
        enabled=not targets.paused,
        description=f"Posts to the webhook if no night succeeds for {_format_span(missing_after)}.",
        tags=[TAG],
        trigger=EventTrigger(
            match=_RUNS,
            match_related=_OF_NIGHT,
            expect={"prefect.flow-run.Completed"},
            posture=Posture.Proactive,
            threshold=1,
            within=missing_after,
        ),
        actions=[
            CallWebhook(
                block_document_id=targets.webhook,
                payload=template_missing_night(_format_span(missing_after)),
            )
        ],
    )


def _format_span(span: timedelta) -> str:
    """'26 hours', '5 minutes'."""
    for name, seconds in (("hours", 3600), ("minutes", 60)):
        if span.total_seconds() >= seconds:
            return f"{span.total_seconds() / seconds:g} {name}"
    return f"{span.total_seconds():g} seconds"

"""Which automations there are: what a Prefect server does by itself when something goes wrong."""

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

from flows.deployed.confirm import confirm
from flows.nightly import nightly
from tasks.automations import TAG, Targets

MISSING = "deadheat: missing nights"
HEARTBEAT_S = 60
"""How often a run says that it is alive."""
SILENCE = timedelta(minutes=5)
"""A run that says nothing for so long is over."""
_LATE = timedelta(hours=2)
"""After the longest time between two nights, until one is missing."""
_NUM_NIGHTS = 40
_HEARTBEAT = "prefect.flow-run.heartbeat"
_ENDS = ("Completed", "Failed", "TimedOut", "Crashed", "Cancelled", "Suspended")
"""After these, nothing more is heard of a run. Any other change of its state says nothing of its
process: others may bring it about when its machine is gone."""
_RUNS = ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"})
_OF_NIGHT = ResourceSpecification(
    {"prefect.resource.role": "deployment", "prefect.resource.name": nightly.name}
)
_OURS = ResourceSpecification(
    {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"}
)


def find_patience(cron: str, timezone: str) -> timedelta:
    """How long after a night the next one is missing: 26 hours where there is one a day."""
    from prefect.server.schemas.schedules import CronSchedule

    schedule = CronSchedule(cron=cron, timezone=timezone)
    nights = asyncio.run(schedule.get_dates(n=_NUM_NIGHTS, start=datetime.now(UTC)))
    gaps = [later - earlier for earlier, later in pairwise(nights)]
    return max(gaps, default=timedelta(days=366)) + _LATE


def list_automations(
    targets: Targets, *, patience: timedelta, silence: timedelta = SILENCE
) -> list[AutomationCore]:
    """All of them; those that tell somebody only where there is a webhook to tell it to."""
    return list(_list(targets, patience, silence))


def _list(targets: Targets, patience: timedelta, silence: timedelta) -> Iterator[AutomationCore]:
    yield AutomationCore(
        name="deadheat: zombie runs",
        description=(
            f"A run of which nothing was heard for {_say(silence)} has crashed: its place in the "
            "pool is free again. Started again, it resumes."
        ),
        tags=[TAG],
        trigger=EventTrigger(
            match=_RUNS,
            match_related=_OURS,
            for_each={"prefect.resource.id"},
            after={_HEARTBEAT},
            expect={_HEARTBEAT, *(f"prefect.flow-run.{end}" for end in _ENDS)},
            posture=Posture.Proactive,
            threshold=1,
            within=silence,
        ),
        actions=[
            ChangeFlowRunState(
                name=None,
                state=StateType.CRASHED,
                force=False,
                message=f"nothing was heard of it for {_say(silence)}; started again, it resumes",
            )
        ],
    )
    yield AutomationCore(
        name="deadheat: confirm suspicions",
        description="A night that leaves suspicions open has them measured again.",
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
        description="A night that failed or crashed is told to the webhook.",
        tags=[TAG],
        trigger=EventTrigger(
            match=ResourceSpecification(
                {**_RUNS.root, "prefect.state-type": ["FAILED", "CRASHED"]}
            ),
            match_related=_OF_NIGHT,
            expect={"prefect.flow-run.*"},
            posture=Posture.Reactive,
        ),
        actions=[
            CallWebhook(
                block_document_id=targets.webhook,
                payload=_write_payload(
                    "'The night ' ~ flow_run.name ~ ' ended as ' ~ flow_run.state.name ~ ': ' ~ "
                    "(flow_run.state.message or 'no reason was left')"
                ),
            )
        ],
    )
    yield AutomationCore(
        name=MISSING,
        enabled=not targets.paused,
        description=f"No night has ended well for {_say(patience)}: told to the webhook.",
        tags=[TAG],
        trigger=EventTrigger(
            match=_RUNS,
            match_related=_OF_NIGHT,
            expect={"prefect.flow-run.Completed"},
            posture=Posture.Proactive,
            threshold=1,
            within=patience,
        ),
        actions=[
            CallWebhook(
                block_document_id=targets.webhook,
                payload=_write_payload(f"'No night has ended well for {_say(patience)}'"),
            )
        ],
    )


def _say(span: timedelta) -> str:
    """'26 hours', '5 minutes'."""
    for name, seconds in (("hours", 3600), ("minutes", 60)):
        if span.total_seconds() >= seconds:
            return f"{span.total_seconds() / seconds:g} {name}"
    return f"{span.total_seconds():g} seconds"


def _write_payload(words: str) -> str:
    """JSON with a `text`, as `benchcore.alerts` posts it: Slack reads <!channel> and the like as
    commands. `words` is an expression of Jinja."""
    escaped = "replace('&', '&amp;') | replace('<', '&lt;') | replace('>', '&gt;')"
    return f'{{"text": {{{{ ({words}) | string | {escaped} | tojson }}}}}}'

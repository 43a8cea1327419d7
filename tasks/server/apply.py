"""Applies work pools, deployments and automations to a Prefect server, one after the other.

Applying is idempotent: if the server refuses one, the others are applied, the error names the
refused ones, and the same call can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from prefect.automations import AutomationCore
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists
from prefect.schedules import Cron, Schedule

from benchcore.errors import UserError
from benchcore.experiments.alerting.outbox import find_webhook
from tasks.alerts import WEBHOOK_BLOCK, load_webhook
from tasks.artifacts import WAITED
from tasks.measurement import MEASURE_LIMIT
from tasks.server import prefect_server
from tasks.server.prefect_server import list_our_automations, list_our_deployments

QUEUES = ("people", "releases", "night", "backlog")
"""The pool's work queues, first served first: a person who waits goes before the night, and the
night before work that can wait for days."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The work pool of processes that runs campaigns, at most `limit` at the same time."""

    name: str
    limit: int


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What automations act on: the ids of deployments by full name, the id of the webhook's block
    if there is a webhook, and whether everything is paused."""

    deployments: Mapping[str, UUID]
    webhook: UUID | None
    paused: bool = False


Automations = Callable[[Targets], Sequence[AutomationCore]]
"""Returns the automations that should exist."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """Names of what exists now and of what was removed because it is no longer listed."""

    present: tuple[str, ...]
    removed: tuple[str, ...]
    alerts: bool
    """Whether a webhook receives alerts."""


@dataclass(frozen=True)
class _Attempts:
    """Runs one request after the other, and collects what the server refused."""

    refused: list[str] = field(default_factory=list)

    def run(self, name: str, request: Callable[..., Any], *arguments: Any) -> Any:
        """The request's result; None if the server refused it."""
        try:
            return request(*arguments)
        except (*prefect_server.REFUSED, UserError) as error:
            self.refused.append(f"{name!r}: {prefect_server.explain(error)}")
            return None


def read_schedule(cron: str, timezone: str, slug: str) -> Schedule:
    """A cron schedule as Prefect reads it. Raises UserError."""
    from prefect.client.schemas.schedules import CronSchedule

    try:
        CronSchedule(cron=cron, timezone=timezone)
        if len(cron.split()) != 5:  # croniter accepts a sixth field: a night every second
            raise ValueError(cron)
        return Cron(cron, timezone=timezone, slug=slug)
    except ValueError as error:
        raise UserError(
            f"wanted five fields of cron and a time zone's name, got {cron[:100]!r} and "
            f"{timezone[:100]!r}; write for example --cron '0 2 * * *' --timezone Europe/Berlin"
        ) from error


def apply(
    deployments: Sequence[RunnerDeployment],
    pool: Pool,
    list_automations: Automations = lambda targets: (),
    shard_pools: Sequence[WorkPoolCreate] = (),
) -> Applied:
    """Create or update the work pools, deployments and automations; remove deployments and
    automations that have our tag and are not listed. What people paused stays paused.

    Raises UserError if the server can't be used, or refused some: the others are applied, nothing
    is removed, and the call can be repeated.
    """
    prefect_server.check_server()
    find_webhook()
    attempts = _Attempts()
    with get_client(sync_client=True) as client:
        for each in shard_pools:
            attempts.run(each.name, prefect_server.ensure_pool, client, each)
        is_paused = bool(attempts.run(pool.name, _apply_pool, client, pool))
        ids = {
            each.full_name: attempts.run(each.full_name, _apply_deployment, client, each, paused)
            for each in deployments
            for paused in (is_paused and each.work_pool_name == pool.name,)
        }
        webhook = attempts.run("webhook", _save_webhook)
        targets = Targets(deployments=ids, webhook=webhook, paused=is_paused)
        automations = [] if attempts.refused else list_automations(targets)
        for each in automations:
            attempts.run(each.name, _apply_automation, client, each)
        removed: list[str] = []
        if not attempts.refused:
            kept = {each.name for each in automations}
            removed = _remove_unlisted(client, set(ids.values()), kept)
    if attempts.refused:
        raise UserError(
            f"wanted {len(deployments)} deployments with their work pools and automations, but "
            f"Prefect refused {'; '.join(attempts.refused)}; the others are applied and nothing "
            "was removed: correct what was refused, then deploy again"
        )
    return Applied(present=tuple(ids), removed=tuple(sorted(removed)), alerts=webhook is not None)


def _apply_pool(client: SyncPrefectClient, pool: Pool) -> bool:
    """Create or update the pool, its queues and the limit of measuring tasks; whether the pool is
    paused."""
    prefect_server.ensure_pool(client, WorkPoolCreate(name=pool.name, type="process"))
    client.update_work_pool(pool.name, WorkPoolUpdate(concurrency_limit=pool.limit))
    client.upsert_global_concurrency_limit_by_name(MEASURE_LIMIT, 1)
    for priority, name in enumerate(QUEUES, start=1):
        try:
            client.create_work_queue(name=name, work_pool_name=pool.name, priority=priority)
        except ObjectAlreadyExists:
            queue = client.read_work_queue_by_name(name, work_pool_name=pool.name)
            client.request(
                "PATCH",
                "/work_queues/{id}",
                path_params={"id": queue.id},
                json={"priority": priority},
            )
    return client.read_work_pool(pool.name).is_paused


def _apply_deployment(client: SyncPrefectClient, wanted: RunnerDeployment, paused: bool) -> UUID:
    """Create or update a deployment. What people paused stays paused, a new one starts `paused`."""
    old = prefect_server.find_deployment(client, wanted.full_name)
    wanted.paused = old.paused if old else paused
    inactive = {each.slug for each in (old.schedules if old else ()) if not each.active}
    for schedule in wanted.schedules or ():
        if schedule.slug in inactive:
            schedule.active = False
    applied = wanted.apply()
    assert isinstance(applied, UUID)
    return applied


def _save_webhook() -> UUID | None:
    """Store DEADHEAT_WEBHOOK_URL on the server, which posts to it: when a night is missing there
    may be no worker. Without that variable the stored address is deleted."""
    url, stored = find_webhook(), load_webhook()
    if url is None:
        if stored is not None:
            Webhook.delete(WEBHOOK_BLOCK, **WAITED)
        return None
    if stored is None or stored.url.get_secret_value() != url:
        stored = Webhook(url=url)  # type: ignore[arg-type]
        stored.save(WEBHOOK_BLOCK, overwrite=True, **WAITED)
    return stored._block_document_id


def _apply_automation(client: SyncPrefectClient, wanted: AutomationCore) -> None:
    """Create an automation, or update one that differs: an update restarts its clock. One that
    people disabled stays disabled."""
    old = list_our_automations(client).get(wanted.name)
    if old is None:
        client.create_automation(wanted)
        return
    wanted.enabled = old.enabled
    ours = old.model_dump(include=set(AutomationCore.model_fields), exclude={"owner_resource"})
    if AutomationCore(**ours) != wanted:
        client.update_automation(old.id, wanted)


def _remove_unlisted(
    client: SyncPrefectClient, deployments: set[UUID], automations: set[str]
) -> list[str]:
    """Delete deployments and automations with our tag that are not among these; their names."""
    orphans = [each for each in list_our_deployments(client) if each.id not in deployments]
    for each in orphans:
        client.delete_deployment(each.id)
    stale = [each for each in list_our_automations(client).values() if each.name not in automations]
    for each in stale:
        client.delete_automation(each.id)
    return [each.name for each in (*orphans, *stale)]

"""Hands shards to a Slurm work pool as flow runs, and tells what became of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterIdempotencyKey,
    FlowRunFilterName,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.states import Cancelling
from prefect.utilities.callables import parameter_schema

from benchcore import campaign as steps
from benchcore import placement, variables
from benchcore.errors import UserError
from benchcore.matrix import Plan
from benchcore.placement import Shard
from benchcore.progress import ProgressLog
from benchcore.sites import Site, find_pool, load_site
from benchcore.slurm import scheduler
from benchcore.slurm.allocation import Allocation
from benchcore.slurm.scheduler import SlurmRefusedError, SlurmUnreachableError
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.durations import DuelKind, read_durations
from tasks import work_pools
from tasks.deployments import find_deployment
from tasks.slurm_worker import is_told, pool_template

_PAGE = 200
_MOST_WORDS = 1000
_LAST_WORD = timedelta(minutes=3)
"""How long the worker may take to say what became of a job whose flow run crashed."""


@dataclass(frozen=True)
class Dispatch:
    """One campaign's way to its pool of its site; made by `open_dispatch`."""

    plan: Plan
    state: State
    site: Site
    durations: Mapping[DuelKind, float]
    client: SyncPrefectClient
    _said: dict[str, str] = field(default_factory=dict)
    """What was last said of each shard and duel, so that nothing is said twice."""

    @property
    def folder(self) -> str:
        """The state folder as the site's nodes see it."""
        return find_folder(self.site, self.state.root)

    @property
    def pool(self) -> str:
        """The work pool that serves the campaign's pool."""
        return name_pool(self.site, find_pool(self.site, self.plan.pool)[0])

    def open_pool(self) -> None:
        """The work pool, made where missing. Raises UserError if it is of another type, or no
        worker serves it."""
        name, _ = find_pool(self.site, self.plan.pool)
        work_pools.ensure_pool(self.client, draft_pool(self.site, name, self.state.root))
        if words := self.find_trouble():
            raise UserError(words)

    def _find_deployment(self, shard_flow: Flow[..., Any]) -> UUID:
        """The deployment of the shards' flow to the work pool, as `deadheat deploy` made it; it is
        made where it is missing, and mended where it would run anything else."""
        wanted: dict[str, Any] = {
            "entrypoint": f"{shard_flow.fn.__module__}.{shard_flow.fn.__name__}",
            "work_pool_name": self.pool,
            "parameter_openapi_schema": parameter_schema(shard_flow).model_dump(exclude_unset=True),
        }
        kept: dict[str, Any] = {}
        name = f"{shard_flow.name}/{self.pool}"
        if found := find_deployment(self.client, name):
            if all(getattr(found, field) == value for field, value in wanted.items()):
                return found.id
            kept = found.model_dump(include={"description", "job_variables", "tags", "version"})
            self.tell("deployment", f"{name} would not have run this campaign: it was mended")
        return self.client.create_deployment(
            flow_id=self.client.create_flow_from_name(shard_flow.name),
            name=self.pool,
            enforce_parameter_schema=True,
            **wanted,
            **kept,
        )

    def find_trouble(self) -> str | None:
        """Why shards that wait may wait in vain, if there is a reason that people can mend."""
        if work_pools.is_served(self.client, self.pool):
            return None
        return (
            f"wanted a worker that serves the work pool {self.pool!r}, found none; start one where "
            f"sbatch works: prefect worker start --type slurm --pool {self.pool}"
        )

    def cut_shards(self, given_up: Collection[str]) -> list[Shard]:
        """The shards that are out, and new ones for what is still missing."""
        nodes = self._list_nodes() if self.plan.apart else []
        return placement.cut_shards(self.plan, self.state, self.durations, given_up, nodes=nodes)

    def _list_nodes(self) -> list[str]:
        try:
            return scheduler.list_nodes(find_pool(self.site, self.plan.pool)[1].partition)
        except (SlurmUnreachableError, SlurmRefusedError) as error:
            self.tell("nodes", f"nodes are left to Slurm, allocations may share one: {error}")
            return []

    def hand_over(self, shards: Collection[Shard], shard_flow: Flow[..., Any]) -> None:
        """Create a flow run for each shard that has none."""
        has_run = {shard.id for shard, _ in find_runs(shards, self.client)}
        new = [shard for shard in shards if shard.id not in has_run]
        deployment = self._find_deployment(shard_flow) if new else None
        for shard in new:
            assert deployment is not None
            self._send(shard, deployment)

    def _send(self, shard: Shard, deployment: UUID) -> None:
        asked = find_pool(self.site, shard.pool)[1]
        asked = asked.model_copy(update={"exclude": (*asked.exclude, *shard.exclude)})
        run_deployment(
            deployment,
            parameters={"campaign": shard.campaign, "shard": shard.id, "token": shard.token},
            flow_run_name=f"{shard.campaign}-{shard.id[:4]}",
            timeout=0,
            idempotency_key=_key(shard),
            job_variables=ask_slurm(asked, self.folder),
        )

    def settle_left(self) -> None:
        """Settle the shards that ended while nobody waited for them: they are tried again."""
        for shard, run in find_runs(placement.list_open(self.plan, self.state), self.client):
            if has_ended(run):
                self.settle(shard, run)

    def explain_end(self, run: FlowRun) -> str:
        """Why a shard's duels may lack results: its last state's words, and the end of the job's
        log where the job was taken from it."""
        assert run.state is not None
        words = run.state.message or str(run.state_name)
        if run.state.type is StateType.COMPLETED:
            return (
                "its shard ended well, but its document did not arrive: does every node share "
                f"{str(self.state.root)!r}?"
            )
        if run.state.type is not StateType.CRASHED or not run.infrastructure_pid:
            return words
        log = Path(self.folder) / "slurm-jobs" / f"{run.infrastructure_pid}.log"
        try:
            tail = log.read_text(encoding="utf-8", errors="replace").strip()[-_MOST_WORDS:]
        except OSError:
            return f"{words}; it left no log {str(log)!r}: does its node share that folder?"
        return f"{words}; the end of its log: {tail}" if tail else words

    def settle(self, shard: Shard, run: FlowRun) -> dict[str, str]:
        """Write down that a shard is over; the duels that it left without a document, and why."""
        return placement.settle_shard(self.state, shard, self.explain_end(run))

    def tell(self, about: str, text: str) -> None:
        """Say something to whoever follows the campaign, unless it was the last word about that;
        an empty text is not said, but then what was said before is news again."""
        if self._is_news(about, text) and text:
            self._log.append(event="shard", text=text)

    def tell_measured(self, shards: Collection[Shard]) -> None:
        """Say which duels of the shards were measured since the last time."""
        for duel_run in placement.list_measured(self.state, shards):
            if self._is_news(duel_run, "measured"):
                self._log.append(event="duel", what="done", duel_run=duel_run)
                title = steps.find_duel(self.plan, duel_run).title
                self._log.append(event="shard", text=f"{title}: measured")

    def tell_running(self, runs: Collection[tuple[Shard, FlowRun]]) -> None:
        """Say how many duels are measured at a time, where that has changed."""
        running = sum(
            shard.lanes for shard, run in runs if run.state and run.state.type is StateType.RUNNING
        )
        if self._is_news("side by side", str(running)):
            self._log.append(event="shards", side_by_side=running)

    def _is_news(self, about: str, text: str) -> bool:
        before, self._said[about] = self._said.get(about), text
        return before != text

    @property
    def _log(self) -> ProgressLog:
        return steps.progress_log(self.state, self.plan.campaign)


def find_folder(site: Site, root: Path) -> str:
    """The state folder `root` as a site's nodes see it."""
    return site.state or str(root)


def name_pool(site: Site, pool: str) -> str:
    """The work pool that serves a pool of a Slurm site."""
    return f"{site.name}-{pool}"


def draft_pool(site: Site, pool: str, root: Path) -> WorkPoolCreate:
    """That work pool, as it is made where it is missing."""
    template = pool_template(site.pools[pool], find_folder(site, root))
    return WorkPoolCreate(name=name_pool(site, pool), type="slurm", base_job_template=template)


def ask_slurm(allocation: Allocation, folder: str) -> dict[str, Any]:
    """What a shard's job asks for, and what it has to know, as a deployment or a run says it."""
    sites = variables.SITES.read()
    environment = {"DEADHEAT_STATE": folder} | ({"DEADHEAT_SITES": sites} if sites else {})
    return {**allocation.model_dump(mode="json"), "folder": folder, "env": environment}


@contextmanager
def open_dispatch(campaign: str, root: str) -> Iterator[Dispatch]:
    """A campaign's dispatch, for this process alone."""
    state = State(Path(root))
    plan = steps.load_campaign(state, campaign)
    site = load_site(plan.site)
    with placement.hold_campaign(plan, state), connect() as client:
        durations = read_durations(open_database(state.database_url), site.name)
        yield Dispatch(plan, state, site, durations, client)


def connect() -> SyncPrefectClient:
    """A client of the Prefect server, for as long as shards are waited for: one that has had an
    answer before asks again for about a minute while the server is away."""
    return get_client(sync_client=True)


def find_runs(shards: Collection[Shard], client: SyncPrefectClient) -> list[tuple[Shard, FlowRun]]:
    """The flow runs that shards have, as they are now."""
    by_key = {_key(shard): shard for shard in shards}
    keys = list(by_key)
    runs = [
        run
        for start in range(0, len(keys), _PAGE)
        for run in client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                idempotency_key=FlowRunFilterIdempotencyKey(any_=keys[start : start + _PAGE])
            ),
            limit=_PAGE,
        )
    ]
    return [(by_key[str(run.idempotency_key)], run) for run in runs]


def _key(shard: Shard) -> str:
    return f"{_key_campaign(shard.campaign)}{shard.id}"


def _key_campaign(campaign: str) -> str:
    return f"deadheat-{campaign}-"


def cancel_shards(campaign: str) -> None:
    """Cancel what a campaign that nobody wants any more has in Slurm, or waiting for it."""
    waiting = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING]
    of_campaign = FlowRunFilter(
        name=FlowRunFilterName(like_=f"{campaign}-"),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=waiting)),
    )
    with connect() as client:
        for run in client.read_flow_runs(flow_run_filter=of_campaign, limit=_PAGE):
            if str(run.idempotency_key).startswith(_key_campaign(campaign)):
                client.set_flow_run_state(run.id, Cancelling(message="its campaign was cancelled"))


def has_ended(run: FlowRun) -> bool:
    """Whether a shard's flow run is over. That it crashed is believed once the worker has said so,
    or has had the time to: it may be sent again."""
    state = run.state
    if state is None or not state.is_final():
        return False
    if state.type is not StateType.CRASHED or not run.infrastructure_pid or is_told(state):
        return True
    return datetime.now(UTC) - state.timestamp >= _LAST_WORD


def describe(run: FlowRun) -> str:
    """Where a shard's flow run is, in words; the same words as long as nothing changes."""
    job = f"Slurm job {run.infrastructure_pid}"
    assert run.state is not None
    if run.state.is_final():
        return f"{str(run.state_name).lower()}{f', {job}' if run.infrastructure_pid else ''}"
    if not run.infrastructure_pid:
        return "waits for the worker"
    return f"runs as {job}" if run.state.type is StateType.RUNNING else f"waits as {job}"

"""Measures a campaign's duels in a Slurm cluster: submits shards to a work pool as flow runs, waits
for them, and records how they ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterIdempotencyKey,
    FlowRunFilterName,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.flows import load_flow_from_entrypoint
from prefect.states import Cancelling
from prefect.utilities.callables import parameter_schema

from benchcore.errors import UserError
from benchcore.planning.matrix import Plan
from benchcore.running.duels import find_duel
from benchcore.running.plans import load_campaign, progress_log
from benchcore.running.progress import ProgressLog
from benchcore.running.shards import (
    Shard,
    close_shard,
    cut_shards,
    list_measured,
    list_open_shards,
    lock_campaign,
)
from benchcore.running.sites import Site, find_pool, load_site
from benchcore.running.slurm import scheduler
from benchcore.running.slurm.scheduler import SlurmRefusedError, SlurmUnreachableError
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.earlier.nights import DuelKind, read_durations
from tasks.server import prefect_server
from tasks.slurm.pools import draft_pool, find_folder, make_job_variables, name_pool
from tasks.slurm.worker import is_confirmed

_SHARD_FLOW = "flows.measure_shard.measure_shard"
"""An entry point, as in a deployment: a flow imports its tasks, never the reverse."""
_MIN_PAUSE_S, _MAX_PAUSE_S = 1.0, 15.0
"""Between looks at the shards' runs: longer and longer while nothing changes."""
_CHECK_S = 60.0
"""Between checks of the worker."""
_PAGE = 200
_MAX_TEXT = 1000
_NOT_SUBMITTED = "Failed to submit flow run"
"""How Prefect's worker begins a crash in submitting."""
_GRACE = timedelta(minutes=3)
"""How long the worker may take to report the job of a flow run that crashed."""


def measure_in_shards(
    campaign: str, root: str, update: Callable[[], None] = lambda: None
) -> list[str]:
    """Measure every duel in the allocation of some shard; the reasons of those without a result.
    `update` is called whenever more may have been measured.

    Shards that an earlier call submitted are waited for, not submitted again.
    """
    with open_dispatch(campaign, root) as dispatch:
        lost = _measure(dispatch, update)
        plan = dispatch.plan
    by_reason: dict[str, list[str]] = {}
    for duel in plan.duels:
        if duel.duel_run in lost:
            by_reason.setdefault(lost[duel.duel_run], []).append(duel.title)
    return [f"{', '.join(titles)}: {reason}" for reason, titles in by_reason.items()]


def _measure(dispatch: Dispatch, update: Callable[[], None]) -> dict[str, str]:
    dispatch.open_pool()
    dispatch.close_ended()
    lost: dict[str, str] = {}
    while shards := dispatch.cut_shards(lost):
        dispatch.submit(shards, load_flow_from_entrypoint(_SHARD_FLOW))
        for shard, run in _wait_for_some(shards, dispatch, update):
            lost |= dispatch.close(shard, run)
    return lost


def _wait_for_some(
    shards: list[Shard], dispatch: Dispatch, update: Callable[[], None]
) -> list[tuple[Shard, FlowRun]]:
    """The shards that ended, once there are any; none if a flow run was deleted."""
    checked_at, pause_s, before = 0.0, _MIN_PAUSE_S, None
    while True:
        runs = find_runs(shards, dispatch.client)
        dispatch.report_measured(shards)
        update()
        dispatch.report_running(runs)
        for shard, run in runs:
            dispatch.report(shard.id, f"{shard.title}: {describe(run)}")
        if time.monotonic() - checked_at >= _CHECK_S:
            checked_at = time.monotonic()
            dispatch.report("obstacle", dispatch.find_obstacle() or "")
        ended = [(shard, run) for shard, run in runs if has_ended(run)]
        if ended or len(runs) < len(shards):
            return ended
        now = dict(dispatch.reported)
        pause_s = min(1.5 * pause_s, _MAX_PAUSE_S) if now == before else _MIN_PAUSE_S
        before = now
        time.sleep(pause_s)


@dataclass(frozen=True)
class Dispatch:
    """Submits a campaign's shards to the pool of its site; made by `open_dispatch`."""

    plan: Plan
    state: State
    site: Site
    durations: Mapping[DuelKind, float]
    client: SyncPrefectClient
    reported: dict[str, str] = field(default_factory=dict)
    """The last report on each shard and duel, so that nothing is reported twice."""

    @property
    def folder(self) -> str:
        """The state folder as the site's nodes see it."""
        return find_folder(self.site, self.state.root)

    @property
    def pool(self) -> str:
        """The work pool that serves the campaign's pool."""
        return name_pool(self.site, find_pool(self.site, self.plan.pool)[0])

    def open_pool(self) -> None:
        """Create the work pool if it is missing. Raises UserError if it has another type, or no
        worker."""
        name, _ = find_pool(self.site, self.plan.pool)
        prefect_server.ensure_pool(self.client, draft_pool(self.site, name, self.state.root))
        if obstacle := self.find_obstacle():
            raise UserError(obstacle)

    def _find_deployment(self, shard_flow: Flow[..., Any]) -> UUID:
        """The deployment of the shards' flow to the work pool, as `deadheat deploy` creates it;
        created if it is missing, corrected if it would run anything else."""
        wanted: dict[str, Any] = {
            "entrypoint": f"{shard_flow.fn.__module__}.{shard_flow.fn.__name__}",
            "work_pool_name": self.pool,
            "parameter_openapi_schema": parameter_schema(shard_flow).model_dump(exclude_unset=True),
        }
        kept: dict[str, Any] = {}
        name = f"{shard_flow.name}/{self.pool}"
        if found := prefect_server.find_deployment(self.client, name):
            if all(getattr(found, field) == value for field, value in wanted.items()):
                return found.id
            kept = found.model_dump(include={"description", "job_variables", "tags", "version"})
            self.report("deployment", f"{name} would not have run this campaign: corrected")
        return self.client.create_deployment(
            flow_id=self.client.create_flow_from_name(shard_flow.name),
            name=self.pool,
            enforce_parameter_schema=True,
            **wanted,
            **kept,
        )

    def find_obstacle(self) -> str | None:
        """Why shards can't start, if people can change that."""
        if prefect_server.is_served(self.client, self.pool):
            return None
        return (
            f"wanted a worker that serves the work pool {self.pool!r}, found none; start one where "
            f"sbatch works: prefect worker start --type slurm --pool {self.pool}"
        )

    def cut_shards(self, given_up: Collection[str]) -> list[Shard]:
        """The shards that are submitted, and new ones for the remaining duels."""
        nodes = self._list_nodes() if self.plan.separate_nodes else []
        return cut_shards(self.plan, self.state, self.durations, given_up, nodes=nodes)

    def _list_nodes(self) -> list[str]:
        try:
            return scheduler.list_nodes(find_pool(self.site, self.plan.pool)[1].partition)
        except (SlurmUnreachableError, SlurmRefusedError) as error:
            self.report("nodes", f"Slurm chooses the nodes, allocations may share one: {error}")
            return []

    def submit(self, shards: Collection[Shard], shard_flow: Flow[..., Any]) -> None:
        """Create a flow run for each shard that has none."""
        has_run = {shard.id for shard, _ in find_runs(shards, self.client)}
        new = [shard for shard in shards if shard.id not in has_run]
        deployment = self._find_deployment(shard_flow) if new else None
        for shard in new:
            assert deployment is not None
            self._send(shard, deployment)

    def _send(self, shard: Shard, deployment: UUID) -> None:
        requested = find_pool(self.site, shard.pool)[1].with_devices(shard.devices)
        requested = requested.model_copy(update={"exclude": (*requested.exclude, *shard.exclude)})
        run_deployment(
            deployment,
            parameters={"campaign": shard.campaign, "shard": shard.id, "token": shard.token},
            flow_run_name=f"{shard.campaign}-{shard.id[:4]}",
            timeout=0,
            idempotency_key=_key(shard),
            job_variables=make_job_variables(requested, self.folder),
        )

    def close_ended(self) -> None:
        """Close the shards that ended while no campaign waited: their duels are tried again."""
        for shard, run in find_runs(list_open_shards(self.plan, self.state), self.client):
            if has_ended(run):
                self.close(shard, run)

    def explain_end(self, run: FlowRun) -> str:
        """Why a shard's duels may lack results: its last state's message, and the end of the job's
        log if the job was lost."""
        assert run.state is not None
        reason = run.state.message or str(run.state_name)
        if run.state.type is StateType.COMPLETED:
            return (
                "its shard succeeded, but its document is missing; check that every node "
                f"shares {str(self.state.root)!r}"
            )
        if run.state.type is not StateType.CRASHED or not run.infrastructure_pid:
            return reason
        log = Path(self.folder) / "slurm-jobs" / f"{run.infrastructure_pid}.log"
        try:
            tail = log.read_text(encoding="utf-8", errors="replace").strip()[-_MAX_TEXT:]
        except OSError:
            return f"{reason}; it left no log {str(log)!r}: check that its node shares that folder"
        return f"{reason}; the end of its log: {tail}" if tail else reason

    def close(self, shard: Shard, run: FlowRun) -> dict[str, str]:
        """Record that a shard has ended; its duels without a document, each with the reason."""
        submitted = was_submitted(run)
        return close_shard(self.state, shard, self.explain_end(run), submitted=submitted)

    def report(self, about: str, text: str) -> None:
        """Add to the campaign's progress, unless the last report on `about` was equal. An empty
        text is not shown; after it the same text is news again."""
        if self._is_news(about, text) and text:
            self._log.append(event="shard", text=text)

    def report_measured(self, shards: Collection[Shard]) -> None:
        """Report the duels that were measured since the last call."""
        for duel_run in list_measured(self.state, shards):
            if self._is_news(duel_run, "measured"):
                self._log.append(event="duel", what="done", duel_run=duel_run)
                title = find_duel(self.plan, duel_run).title
                self._log.append(event="shard", text=f"{title}: measured")

    def report_running(self, runs: Collection[tuple[Shard, FlowRun]]) -> None:
        """Report how many duels are measured at a time, if that has changed."""
        running = sum(
            shard.slots for shard, run in runs if run.state and run.state.type is StateType.RUNNING
        )
        if self._is_news("side by side", str(running)):
            self._log.append(event="shards", side_by_side=running)

    def _is_news(self, about: str, text: str) -> bool:
        before, self.reported[about] = self.reported.get(about), text
        return before != text

    @property
    def _log(self) -> ProgressLog:
        return progress_log(self.state, self.plan.campaign)


@contextmanager
def open_dispatch(campaign: str, root: str) -> Iterator[Dispatch]:
    """A campaign's dispatch, locked for this process."""
    state = State(Path(root))
    plan = load_campaign(state, campaign)
    site = load_site(plan.site)
    with lock_campaign(plan, state), connect() as client:
        durations = read_durations(open_database(state.database_url), site.name)
        yield Dispatch(plan, state, site, durations, client)


def connect() -> SyncPrefectClient:
    """A client of the Prefect server for long waits: after its first answer it retries for about a
    minute while the server is away."""
    return get_client(sync_client=True)


def find_runs(shards: Collection[Shard], client: SyncPrefectClient) -> list[tuple[Shard, FlowRun]]:
    """The flow runs of shards, as they are now."""
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
    """The idempotency key of a shard. It includes the state folder: others may have a campaign of
    that name with those duels."""
    return f"{_key_campaign(shard.campaign)}{shard.id}-{shard.token}"


def _key_campaign(campaign: str) -> str:
    return f"deadheat-{campaign}-"


def cancel_shards(campaign: str) -> None:
    """Cancel the shards of a campaign, in Slurm or waiting for it."""
    cancelled: set[UUID] = set()
    with connect() as client:
        # Again until there are no others: a run that ends between two pages shifts the later ones.
        while new := _list_unfinished(campaign, client) - cancelled:
            for run in new:
                client.set_flow_run_state(run, Cancelling(message="its campaign was cancelled"))
            cancelled |= new


def _list_unfinished(campaign: str, client: SyncPrefectClient) -> set[UUID]:
    waiting = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING]
    named = FlowRunFilter(
        name=FlowRunFilterName(like_=f"{campaign}-"),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=waiting)),
    )
    found: list[FlowRun] = []
    while page := client.read_flow_runs(flow_run_filter=named, limit=_PAGE, offset=len(found)):
        found += page
    return {run.id for run in found if str(run.idempotency_key).startswith(_key_campaign(campaign))}


def has_ended(run: FlowRun) -> bool:
    """Whether a shard's flow run has ended. A crash counts once the worker has confirmed it, or has
    had the time to: until then Slurm may restart the job."""
    state = run.state
    if state is None or not state.is_final():
        return False
    if state.type is not StateType.CRASHED or not run.infrastructure_pid or is_confirmed(state):
        return True
    return datetime.now(UTC) - state.timestamp >= _GRACE


def was_submitted(run: FlowRun) -> bool:
    """Whether a shard's flow run that has ended reached Slurm, or was refused by it. Else the
    worker failed, as where Prefect's server answered 503 while it submitted: that passes."""
    state = run.state
    if state is None or state.type is not StateType.CRASHED or run.infrastructure_pid:
        return True
    message = state.message or ""
    return not message.startswith(_NOT_SUBMITTED) or SlurmRefusedError.__name__ in message


def describe(run: FlowRun) -> str:
    """The state of a shard's flow run; the same text as long as nothing changes."""
    job = f"Slurm job {run.infrastructure_pid}"
    assert run.state is not None
    if run.state.is_final():
        return f"{str(run.state_name).lower()}{f', {job}' if run.infrastructure_pid else ''}"
    if not run.infrastructure_pid:
        return "waits for the worker"
    return f"runs as {job}" if run.state.type is StateType.RUNNING else f"waits as {job}"

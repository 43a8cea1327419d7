"""The Prefect worker type `slurm`: it submits flow runs as Slurm jobs and reports how they end.

It has no state. A flow run's jobs have its id in their name, so a worker that was killed, or
another one, finds them again. Slurm limits how many run; `--limit` counts submissions only.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.abc
from anyio.to_thread import run_sync
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterEndTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import InfrastructureNotFound, ObjectNotFound
from prefect.states import AwaitingRetry, Cancelled, Crashed, Running
from prefect.utilities.urls import url_for
from prefect.workers.base import (
    BaseJobConfiguration,
    BaseVariables,
    BaseWorker,
    BaseWorkerResult,
)
from pydantic import Field, field_validator

from benchcore.running.slurm import scheduler
from benchcore.running.slurm.allocation import Allocation
from benchcore.running.slurm.batch_script import BatchJob, shard_command, write_batch_script
from benchcore.running.slurm.job_states import Fate, judge_state
from benchcore.running.slurm.reconcile import Action, Decision, Phase, RunView, decide
from benchcore.running.slurm.scheduler import Job, SlurmRefusedError, SlurmUnreachableError

_PHASES: dict[StateType, Phase] = {
    StateType.PENDING: "pending",
    StateType.RUNNING: "running",
    StateType.CANCELLING: "cancelling",
    StateType.CRASHED: "crashed",
}
_CRASHED_SINCE = timedelta(hours=1)
"""How old a crash may be to be checked: the engine in a job that is preempted reports a crash."""
_PAGE = 200
_PATIENCE_S, _PAUSE_S = 600.0, 10.0


class SlurmVariables(BaseVariables, Allocation):  # pyright: ignore[reportIncompatibleMethodOverride]
    """What a deployment or a run may choose; the form in the UI."""

    folder: str = Field(description="Absolute folder that nodes and worker share; logs go there.")


class SlurmJobConfiguration(BaseJobConfiguration):
    """A flow run's job. The command is always ours: text of a form never reaches a shell."""

    allocation: Allocation = Field(
        json_schema_extra={
            "template": {name: f"{{{{ {name} }}}}" for name in Allocation.model_fields}
        }
    )
    folder: str

    @field_validator("command")
    @classmethod
    def _refuse_commands(cls, command: str | None) -> str | None:
        if command:
            raise ValueError(
                "a Slurm job runs its flow run and nothing else; leave 'command' empty"
            )
        return command


class SlurmWorkerResult(BaseWorkerResult):
    """A submitted job; reconciling finds how it ends."""


class SlurmWorker(BaseWorker[SlurmJobConfiguration, SlurmVariables, SlurmWorkerResult]):
    """Submits the flow runs of its pool to Slurm, and reports the end of their jobs to Prefect."""

    type = "slurm"
    job_configuration = SlurmJobConfiguration
    job_configuration_variables = SlurmVariables
    _description = "Run each flow run as a Slurm job: one allocation per shard."

    async def run(
        self,
        flow_run: FlowRun,
        configuration: SlurmJobConfiguration,
        task_status: anyio.abc.TaskStatus[Any] | None = None,
    ) -> SlurmWorkerResult:
        """Submit the flow run's job, or find the one that it has. Waits for nothing after that."""
        job_id = await self._submit_once(flow_run, configuration)
        if task_status is not None:
            task_status.started(job_id)
        return SlurmWorkerResult(status_code=0, identifier=job_id)

    async def kill_infrastructure(
        self,
        infrastructure_pid: str,
        configuration: SlurmJobConfiguration,
        grace_seconds: int = 30,
    ) -> None:
        """Cancel a flow run's job; Slurm itself grants the time to end."""
        name = _name_job(configuration.env["PREFECT__FLOW_RUN_ID"])
        try:
            await run_sync(scheduler.cancel, infrastructure_pid, name)
        except SlurmRefusedError as error:
            raise InfrastructureNotFound(str(error)) from error

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """One round of the worker: first what became of jobs, then what must be submitted."""
        try:
            await self._reconcile()
        except (SlurmUnreachableError, SlurmRefusedError) as error:
            self._logger.warning("Slurm did not list its jobs, which continue: %s", error)
        return await super().get_and_submit_flow_runs()

    async def _submit_once(self, flow_run: FlowRun, configuration: SlurmJobConfiguration) -> str:
        name = _name_job(flow_run.id)
        job = BatchJob(
            name=name,
            allocation=configuration.allocation,
            folder=configuration.folder,
            command=shard_command(),
            comment=_name_page(flow_run),
        )
        script = write_batch_script(job)
        environment = {key: value for key, value in configuration.env.items() if value is not None}
        await anyio.Path(job.log_folder).mkdir(parents=True, exist_ok=True)
        until = anyio.current_time() + _PATIENCE_S
        while True:
            try:
                jobs = await run_sync(scheduler.list_queued, name)
                alive = [each for each in jobs if _is_alive(each)]
                if alive:
                    return alive[-1].job_id
                return await run_sync(scheduler.submit, script, environment)
            except SlurmUnreachableError as error:
                if anyio.current_time() >= until:
                    raise
                self.get_flow_run_logger(flow_run).warning("Slurm does not answer: %s", error)
                await anyio.sleep(_PAUSE_S)

    async def _reconcile(self) -> None:
        """One squeue and one sacct for every flow run of the pool that may need something."""
        runs = [
            run for run in await self._list_runs() if run.id not in self._submitting_flow_run_ids
        ]
        jobs = await run_sync(scheduler.list_jobs, [_name_job(run.id) for run in runs])
        for run in runs:
            view = await self._view(run)
            decision = decide(view, jobs.get(_name_job(run.id), []))
            if decision.action is not Action.WAIT:
                await self._carry_out(run, decision)

    async def _list_runs(self) -> list[FlowRun]:
        recently = datetime.now(UTC) - _CRASHED_SINCE
        unfinished = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
        wanted = (
            FlowRunFilter(state=_of_type(*unfinished)),
            FlowRunFilter(
                state=_of_type(StateType.CRASHED),
                end_time=FlowRunFilterEndTime.model_validate({"after_": recently}),
            ),
        )
        pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[self._work_pool_name]))
        found: list[FlowRun] = []
        for chosen in wanted:
            page: list[FlowRun] | None = None
            offset = 0
            while page is None or len(page) == _PAGE:
                page = await self.client.read_flow_runs(
                    flow_run_filter=chosen, work_pool_filter=pool, limit=_PAGE, offset=offset
                )
                found += page
                offset += _PAGE
        return found

    async def _view(self, run: FlowRun) -> RunView:
        assert run.state is not None
        phase = _PHASES[run.state.type]
        requested = False
        if phase == "crashed":
            past = await self.client.read_flow_run_states(run.id)
            requested = any(state.type is StateType.CANCELLING for state in past)
        return RunView(
            phase=phase,
            since_s=(datetime.now(UTC) - run.state.timestamp).total_seconds(),
            job_id=run.infrastructure_pid,
            cancel_requested=requested,
            reported=is_confirmed(run.state),
        )

    async def _carry_out(self, run: FlowRun, decision: Decision) -> None:
        """Do what was decided, unless the flow run has moved on since it was read."""
        try:
            now = await self.client.read_flow_run(run.id)
        except ObjectNotFound:
            return
        assert run.state is not None
        if now.state is None or now.state.id != run.state.id:
            return
        self.get_flow_run_logger(run).info("%s", decision.message)
        if decision.action in (Action.SCANCEL, Action.CRASHED) and decision.job_id:
            try:
                await run_sync(scheduler.cancel, decision.job_id, _name_job(run.id))
            except SlurmRefusedError as error:  # the other flow runs continue
                self.get_flow_run_logger(run).warning("scancel refused: %s", error)
        if decision.action is Action.ATTACH:
            await self.client.update_flow_run(run.id, infrastructure_pid=decision.job_id)
        engine = run.state.message if run.state.type is StateType.CRASHED else None
        states = {
            Action.SUBMIT_AGAIN: AwaitingRetry(message=decision.message),
            Action.RUNS_ON: Running(message=decision.message),
            Action.CRASHED: Crashed(message=". ".join(filter(None, [decision.message, engine]))),
            Action.CANCELLED: Cancelled(message=decision.message),
        }
        if state := states.get(decision.action):
            await self.client.set_flow_run_state(run.id, state, force=True)


def is_confirmed(state: State[Any]) -> bool:
    """Whether the worker has confirmed a crash from Slurm's job state. Engines also report a crash
    when Slurm ends them, and then may restart their job."""
    return state.type is StateType.CRASHED and (state.message or "").startswith("Slurm ")


def _name_job(run: object) -> str:
    """The name of the jobs of the flow run with this id."""
    return f"deadheat-{run}"


def _name_page(run: FlowRun) -> str | None:
    """The URL of a flow run's page, unless it contains more than an address, such as a password."""
    page = url_for("flow-run", obj_id=run.id) or ""
    return page if re.fullmatch(r"https?://[A-Za-z0-9_./:-]{1,180}", page) else None


def _is_alive(job: Job) -> bool:
    return judge_state(job.state, job.reason) in (Fate.WAITS, Fate.RUNS)


def _of_type(*types: StateType) -> FlowRunFilterState:
    return FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types)))


def pool_template(allocation: Allocation, folder: str) -> dict[str, Any]:
    """The base job template of a work pool with these defaults."""
    template = SlurmWorker.get_default_base_job_template()
    properties = template["variables"]["properties"]
    for name, value in {**allocation.model_dump(mode="json"), "folder": folder}.items():
        properties[name]["default"] = value
    return template

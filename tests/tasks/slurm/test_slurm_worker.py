"""The worker type `slurm` with a real Prefect server and Slurm: nothing lost, nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from local_slurm import LocalSlurm
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun, State
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_LOGGING_TO_API_ENABLED,
    temporary_settings,
)
from prefect.states import Cancelling, Completed, Running
from prefect_server import PREFECT, end, serve_prefect
from pydantic import ValidationError
from typer.testing import CliRunner

from benchcore.running.sites import load_site
from benchcore.running.slurm import scheduler
from benchcore.running.slurm.allocation import Allocation
from benchcore.running.slurm.reconcile import Action, Decision
from benchcore.running.slurm.scheduler import SlurmRefusedError, SlurmUnreachableError
from flows.cli.main import app
from tasks.slurm.worker import (
    SlurmJobConfiguration,
    SlurmVariables,
    SlurmWorker,
    pool_template,
)

POOL = "slurm-local-h100"
# A worker that dies in the worst moment: sbatch took the job, and Prefect does not know it.
DYING_WORKER = f"""
import os, sys
from benchcore.running.slurm import scheduler
submit = scheduler.submit
scheduler.submit = lambda *order: (submit(*order), os._exit(9))
from prefect.cli import app
sys.argv = ["prefect", "worker", "start", "--type", "slurm", "--pool", "{POOL}"]
app()
"""


@dataclass
class Orchestra:
    """A Prefect server, a Slurm, and the flow runs that were requested."""

    slurm: LocalSlurm
    client: SyncPrefectClient
    environment: dict[str, str]
    deployment: UUID
    folder: Path
    runs: dict[str, UUID] = field(default_factory=dict)

    def schedule(self, how: str, **job_variables: object) -> None:
        """Schedule a flow run that does `how`."""
        run = self.client.create_flow_run_from_deployment(
            self.deployment,
            parameters={"folder": str(self.folder), "how": how},
            job_variables=job_variables,
        )
        self.runs[how] = run.id

    def wait(self, how: str, done: Callable[[FlowRun], bool], seconds: float = 300) -> FlowRun:
        """The flow run once `done` holds for it."""
        deadline = time.monotonic() + seconds
        while not done(run := self.client.read_flow_run(self.runs[how])):
            assert time.monotonic() < deadline, (how, run.state, self._describe())
            time.sleep(0.2)
        return run

    def _describe(self) -> str:
        """Slurm's jobs and nodes and the end of the worker's log, for a failure's message."""
        log = self.folder / "worker.log"
        worker = log.read_text(errors="replace")[-4000:] if log.exists() else "no worker ran"
        return "\n".join([self.slurm.run("squeue", "-l"), self.slurm.run("sinfo", "-N"), worker])

    def finish(self, how: str) -> FlowRun:
        """The flow run once it is over."""
        return self.wait(how, lambda run: bool(run.state and run.state.is_final()))

    def list_jobs(self, how: str, fewest: int = 1) -> list[list[str]]:
        """Id and state of each of its jobs once they have ended, as the accounts have them, which
        may learn of one only when it is over."""
        name, fields = f"--name=deadheat-{self.runs[how]}", "--format=jobid,state%30"
        deadline = time.monotonic() + 120
        while True:
            listed = self.slurm.run("sacct", "-X", "-n", "-P", "-D", name, fields)
            jobs = [line.split("|") for line in listed.splitlines()]
            ended = not any(state in ("PENDING", "RUNNING", "COMPLETING") for _, state in jobs)
            if ended and len(jobs) >= fewest:
                return jobs
            assert time.monotonic() < deadline, jobs
            time.sleep(0.2)

    def list_attempts(self, how: str) -> list[str]:
        """The line that each attempt left."""
        path = self.folder / f"{how}.txt"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def orchestra(slurm: LocalSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orchestra]:
    folder = tmp_path_factory.mktemp("orchestra")
    with serve_prefect(folder, slurm.environment) as environment:
        environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
        url = environment["PREFECT_API_URL"]
        with temporary_settings({PREFECT_API_URL: url}), get_client(sync_client=True) as client:
            yield Orchestra(slurm, client, environment, _deploy(client, folder), folder)


def _deploy(client: SyncPrefectClient, folder: Path) -> UUID:
    """A pool of the site `slurm-local`, and a deployment of the flow to it."""
    allocation = load_site("slurm-local").pools["h100"]
    template = pool_template(allocation, str(folder))
    client.create_work_pool(WorkPoolCreate(name=POOL, type="slurm", base_job_template=template))
    flow = client.create_flow_from_name("probe")
    return client.create_deployment(
        flow_id=flow,
        name="probe",
        entrypoint="slurm_probe.probe",
        work_pool_name=POOL,
        job_variables={"minutes": 5},  # a job has the variables of its worker
    )


@pytest.fixture(scope="module")
def worker(orchestra: Orchestra) -> Iterator[subprocess.Popen[bytes]]:
    """First one that dies between submission and update, then one that goes on."""
    orchestra.schedule("is reattached")
    dying = subprocess.run(
        [sys.executable, "-c", DYING_WORKER],
        env=orchestra.environment,
        capture_output=True,
        timeout=90,
    )
    assert dying.returncode == 9, dying.stderr
    for how in ("completes", "waits", "dies"):  # two that wait would take both nodes
        orchestra.schedule(how)
    orchestra.schedule("is refused", partition="nowhere")
    log = (orchestra.folder / "worker.log").open("wb")
    command = [PREFECT, "worker", "start", "--type", "slurm", "--pool", POOL]
    process = subprocess.Popen(command, env=orchestra.environment, stdout=log, stderr=log)
    yield process
    end(process)
    log.close()


@pytest.mark.usefixtures("worker")
def test_a_worker_killed_between_submission_and_update_doubles_nothing(
    orchestra: Orchestra,
) -> None:
    orchestra.wait("is reattached", lambda run: run.infrastructure_pid is not None)
    (orchestra.folder / "is reattached.go").touch()
    run = orchestra.finish("is reattached")
    assert run.state_name == "Completed", run.state
    jobs = orchestra.list_jobs("is reattached")
    assert jobs == [[run.infrastructure_pid, "COMPLETED"]]
    assert len(orchestra.list_attempts("is reattached")) == 1


@pytest.mark.usefixtures("worker")
def test_a_flow_run_completes_in_its_own_allocation(orchestra: Orchestra) -> None:
    run = orchestra.finish("completes")
    assert run.state_name == "Completed", run.state
    assert orchestra.list_attempts("completes")[0].split()[0] == run.infrastructure_pid
    shown = orchestra.slurm.run("scontrol", "show", "job", str(run.infrastructure_pid))
    for words in ("TimeLimit=00:05:00", "Requeue=0", "Partition=gpu", "gres:gpu:h100:1"):
        assert words in shown
    assert (orchestra.folder / "slurm-jobs" / f"{run.infrastructure_pid}.log").exists()


@pytest.mark.usefixtures("worker")
def test_cancelling_a_running_flow_run_reaches_slurm(orchestra: Orchestra) -> None:
    orchestra.wait("waits", lambda _: bool(orchestra.list_attempts("waits")))
    orchestra.client.set_flow_run_state(orchestra.runs["waits"], Cancelling(), force=True)
    run = orchestra.wait("waits", lambda run: run.state_name == "Cancelled")
    [[job, state]] = orchestra.list_jobs("waits")
    assert (job, state.split()[0]) == (run.infrastructure_pid, "CANCELLED")
    assert run.state and f"Slurm job {job} was cancelled" in (run.state.message or "")


@pytest.mark.usefixtures("worker")
def test_a_job_that_dies_is_reported_and_not_retried(orchestra: Orchestra) -> None:
    run = orchestra.finish("dies")
    assert run.state_name == "Crashed" and run.state
    assert "was ended by a signal (FAILED" in (run.state.message or "")
    assert [state for _, state in orchestra.list_jobs("dies")] == ["FAILED"]


@pytest.mark.usefixtures("worker")
def test_a_refusal_is_reported_with_the_message_of_slurm(orchestra: Orchestra) -> None:
    run = orchestra.finish("is refused")
    assert run.state_name == "Crashed" and run.state
    assert "invalid partition specified: nowhere" in (run.state.message or "")
    assert not orchestra.list_jobs("is refused", fewest=0)


@pytest.mark.usefixtures("worker")
def test_a_lost_node_means_a_new_attempt(orchestra: Orchestra) -> None:
    """The last one: it takes a node from every job that is on it."""
    orchestra.schedule("loses its node")
    orchestra.wait("loses its node", lambda _: bool(orchestra.list_attempts("loses its node")))
    job = orchestra.list_attempts("loses its node")[0].split()[0]
    node = orchestra.slurm.run("squeue", "-h", "-j", job, "-o", "%N")
    orchestra.slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    run = orchestra.wait("loses its node", lambda run: run.state_name == "Completed")
    states = [state for _, state in orchestra.list_jobs("loses its node", fewest=2)]
    assert states == ["NODE_FAIL", "COMPLETED"]
    messages = [state.message or "" for state in orchestra.client.read_flow_run_states(run.id)]
    assert any(
        "lost its node (NODE_FAIL" in words and "attempt 2 of 3" in words for words in messages
    )


def test_the_form_knows_every_variable_and_its_bounds() -> None:
    args = ["shard", "template", "--site", "slurm-local", "--pool", "urgent", "--state", "/shared"]
    printed = CliRunner().invoke(app, args, catch_exceptions=False).stdout
    properties = json.loads(printed)["variables"]["properties"]
    assert set(Allocation.model_fields) < set(properties)
    assert properties["partition"]["default"] == "urgent" and properties["partition"]["pattern"]
    assert properties["folder"]["default"] == "/shared"
    assert properties["minutes"]["maximum"] == 10_080
    assert SlurmVariables(partition="gpu", folder="/x").gpus == 1


@pytest.mark.parametrize("wrong", [{"command": "id"}, {"allocation": {"partition": "a;id"}}])
def test_a_configuration_with_shell_syntax_is_refused(wrong: dict[str, object]) -> None:
    fields = {"allocation": {"partition": "gpu"}, "folder": "/shared", **wrong}
    with pytest.raises(ValidationError):
        SlurmJobConfiguration.model_validate(fields)


Order = tuple[SlurmWorker, FlowRun, SlurmJobConfiguration]


@pytest.fixture
def order(slurm: LocalSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    """A worker, a flow run, and its configuration."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    monkeypatch.setattr("tasks.slurm.worker._PAUSE_S", 0.0)
    allocation = {"partition": "gpu", "gpus": 0, "cpus": 1, "memory_mb": 64}
    configuration = SlurmJobConfiguration.model_validate(
        {"allocation": allocation, "folder": str(tmp_path)}
    )
    with temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: False}):
        yield SlurmWorker(work_pool_name=POOL), FlowRun(flow_id=uuid4()), configuration


def test_submitting_twice_is_submitting_once(order: Order, slurm: LocalSlurm) -> None:
    worker, run, configuration = order
    name = f"deadheat-{run.id}"
    ours = configuration.model_copy(update={"env": {"PREFECT__FLOW_RUN_ID": str(run.id)}})
    slurm.run("scontrol", "update", "partitionname=gpu", "state=down")
    try:
        first = anyio.run(worker.run, run, configuration)
        second = anyio.run(worker.run, run, configuration)
        scheduler.cancel(first.identifier, name)
        after = anyio.run(worker.run, run, configuration)  # such as retried by hand
        anyio.run(worker.kill_infrastructure, after.identifier, ours)
        [gone] = [job for job in scheduler.list_queued(name) if job.job_id == after.identifier]
        assert gone.state == "CANCELLED"
    finally:
        slurm.run("scontrol", "update", "partitionname=gpu", "state=up")
    assert first.identifier == second.identifier != after.identifier


def test_a_job_is_submitted_while_the_accounts_are_away(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, run, configuration = order
    call = scheduler._call

    def refuse_sacct(command: list[str], *given: Any) -> str:
        if command[0] == "sacct":
            raise SlurmUnreachableError("sacct did not end within 30 s")
        return call(command, *given)

    monkeypatch.setattr(scheduler, "_call", refuse_sacct)
    monkeypatch.setattr("tasks.slurm.worker._PATIENCE_S", 0.0)
    taken = anyio.run(worker.run, run, configuration)
    scheduler.cancel(taken.identifier, f"deadheat-{run.id}")


def test_a_controller_that_is_away_for_a_while_loses_nothing(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, run, configuration = order
    submit, away = scheduler.submit, [True, True]

    def submit_when_there(script: str, environment: dict[str, str]) -> str:
        if away and away.pop():
            raise SlurmUnreachableError("Unable to contact slurm controller")
        return submit(script, environment)

    monkeypatch.setattr(scheduler, "submit", submit_when_there)
    taken = anyio.run(worker.run, run, configuration)
    scheduler.cancel(taken.identifier, f"deadheat-{run.id}")
    assert not away
    monkeypatch.setattr("tasks.slurm.worker._PATIENCE_S", 0.0)
    away.append(True)
    with pytest.raises(SlurmUnreachableError, match="Unable to contact"):
        anyio.run(worker.run, FlowRun(flow_id=uuid4()), configuration)


class _RecordingClient:
    """A client of Prefect that knows one flow run, and records its states."""

    def __init__(self, run: FlowRun) -> None:
        self.run, self.states = run, []

    async def read_flow_run(self, _: UUID) -> FlowRun:
        return self.run

    async def set_flow_run_state(self, _: UUID, state: State, *, force: bool) -> None:
        assert force
        self.states.append(state.name)


def test_a_flow_run_that_moved_on_is_left_alone(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, _, _ = order
    cancelled: list[str] = []
    monkeypatch.setattr(scheduler, "cancel", lambda job, _: cancelled.append(job))
    seen = FlowRun(flow_id=uuid4(), state=Running())
    crashed = Decision(Action.CRASHED, "Slurm job 7 ended by itself", "7")
    for state, expected in ((Completed(), []), (seen.state, ["Crashed"])):
        client = _RecordingClient(seen.model_copy(update={"state": state}))
        worker._client = client  # type: ignore[assignment]
        anyio.run(worker._carry_out, seen, crashed)
        assert client.states == expected
        assert cancelled == ["7"] * len(expected)


def test_a_refused_scancel_keeps_no_other_flow_run_waiting(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, _, _ = order

    def refuse(job_id: str, name: str) -> None:
        raise SlurmRefusedError("Access/permission denied")

    monkeypatch.setattr(scheduler, "cancel", refuse)
    run = FlowRun(flow_id=uuid4(), state=Cancelling())
    worker._client = _RecordingClient(run)  # type: ignore[assignment]
    anyio.run(worker._carry_out, run, Decision(Action.SCANCEL, "Slurm job 7 runs", "7"))

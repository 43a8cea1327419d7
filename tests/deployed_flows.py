"""What tests deploy to a Prefect server: few deployments, automations; what the server then has."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.events.schemas.automations import Automation

from flows.cli.main import main
from flows.server.automations import list_automations
from flows.server.deployments import DeployOptions, list_deployments

_FIELDS = (
    *("flow_id", "name", "version", "description", "tags", "parameters", "job_variables"),
    *("work_pool_name", "work_queue_name", "path", "entrypoint", "pull_steps", "paused"),
    *("parameter_openapi_schema", "enforce_parameter_schema", "concurrency_options"),
)
DAILY = partial(list_automations, missing_after=timedelta(hours=26))


@flow(name="stranger")
def stranger(number: int) -> None:
    """A flow that is not ours."""


def list_few(wanted: DeployOptions) -> list[RunnerDeployment]:
    """The deployments that tests look at; all of them take twice as long."""
    flows = ("nightly", "compare", "watch-releases", "confirm", "backfill", "measure-shard")
    return [each for each in list_deployments(wanted) if each.flow_name in flows]


def read_deployments() -> dict[str, DeploymentResponse]:
    """Those of the server, by name."""
    with get_client(sync_client=True) as client:
        return {each.name: each for each in client.read_deployments()}


def dump_deployments() -> dict[str, Any]:
    """Everything that was requested, and the id that links lead to."""
    return {
        name: {
            # Prefect returns None at first, and [] later, if there is nothing.
            **{field: getattr(each, field) or None for field in ("id", *_FIELDS)},
            "limit": each.global_concurrency_limit and each.global_concurrency_limit.limit,
            "schedules": [(s.schedule, s.active, s.slug, s.parameters) for s in each.schedules],
        }
        for name, each in read_deployments().items()
    }


def read_automations() -> dict[str, Automation]:
    """Those of the server, by name."""
    with get_client(sync_client=True) as client:
        return {each.name: each for each in client.read_automations()}


def filter_flow(flow: str) -> FlowFilter:
    """Of runs: those of this flow."""
    return FlowFilter(name=FlowFilterName(any_=[flow]))


def call_deadheat(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[object, str]:
    """A command's exit code, and what was printed on stdout and stderr."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr("sys.argv", ["deadheat", *command])
        main()
    printed = capsys.readouterr()
    return ended.value.code, " ".join(f"{printed.out} {printed.err}".split())

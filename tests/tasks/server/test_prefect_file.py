"""`deployments/prefect.yaml`: what `deadheat deploy` reads, and Prefect's own command does, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from manual import ROOT
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect_server import serve_prefect

from benchcore.errors import UserError
from benchcore.running.sites import load_site
from flows.server.deployments import DeployOptions, list_deployments, make_pool
from tasks.server.apply import QUEUES, apply
from tasks.server.prefect_file import read_prefect_file

FILE = ROOT / "deployments" / "prefect.yaml"
SAME = (
    *("name", "description", "entrypoint", "work_pool_name", "work_queue_name"),
    *("concurrency_options", "parameter_openapi_schema", "enforce_parameter_schema"),
)


def test_prefects_own_command_makes_what_deadheat_deploy_makes(tmp_path: Path) -> None:
    wanted = DeployOptions(
        site=load_site("local"), profile="laptop", cron="0 2 * * *", timezone="UTC", root=tmp_path
    )
    with (
        serve_prefect(tmp_path, {"PATH": "/usr/bin:/bin"}) as environment,
        temporary_settings({PREFECT_API_URL: environment["PREFECT_API_URL"]}),
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setenv("PREFECT_API_URL", environment["PREFECT_API_URL"])
        apply(list_deployments(wanted), make_pool(wanted.site))
        ours = _take_away()
        deploy_all = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
        done = subprocess.run(
            [*deploy_all, "--prefect-file", str(FILE)],
            env={**os.environ, **environment, "DEADHEAT_STATE": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        theirs = _take_away()
    assert theirs == ours
    assert len(ours) == len(read_prefect_file(FILE.read_text()))


def _take_away() -> dict[str, dict[str, Any]]:
    """What is deployed, and is no more."""
    with get_client(sync_client=True) as client:
        found = client.read_deployments()
        for each in found:
            client.delete_deployment(each.id)
    return {
        each.name: {
            **{field: getattr(each, field) for field in SAME},
            "limit": each.global_concurrency_limit and each.global_concurrency_limit.limit,
            "schedules": [(s.schedule, s.active, s.slug) for s in each.schedules],
            "pull_steps": each.pull_steps or None,
            "env": (each.job_variables or {})["env"],
            "tags": sorted(set(each.tags) - {"local"}),
        }
        for each in found
    }


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("deployments:", "deploymnts:", "wanted a list of deployments"),
        ("work_pool: *night", "work_pool: {name: deadheat}", "work_queue_name: Field required"),
        ("concurrency_limit: 1", "concurrency_limit: many", "0.concurrency_limit"),
        ("name: deadheat\n", "name: [deadheat\n", "wanted YAML"),
    ],
)
def test_a_broken_file_is_reported(old: str, new: str, words: str) -> None:
    text = FILE.read_text()
    assert old in text
    with pytest.raises(UserError, match=words):
        read_prefect_file(text.replace(old, new, 1))


@pytest.mark.parametrize("entrypoint", ["flows.nightly.none", "flows.none.nightly", "json.loads"])
def test_an_entry_that_is_not_a_flow_is_refused(
    entrypoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = FILE.read_text().replace("flows.nightly.nightly", entrypoint)
    listed = read_prefect_file(text)
    monkeypatch.setattr("flows.server.deployments.read_prefect_file", lambda: listed)
    local = load_site("local")
    wanted = DeployOptions(
        site=local, profile="ci", cron="0 2 * * *", timezone="UTC", root=tmp_path
    )
    with pytest.raises(UserError, match=f"'nightly', got '{entrypoint}'"):
        list_deployments(wanted)


def test_every_deployment_uses_a_known_queue() -> None:
    assert {each.work_pool.work_queue_name for each in read_prefect_file()} <= set(QUEUES)

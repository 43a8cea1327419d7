"""The flow of a release: a slow JAX is measured against the one before it, and an alert says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from result_documents import spool_ceiling
from slow_environments import make_slow
from webhooks import serve_webhook

from benchcore.environments.version_requests import Release, Request
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import JAX_NEWEST
from benchcore.protocol import DuelLimits, EnvironmentRecord
from benchcore.state import open_state
from flows.release import release

pytestmark = [
    pytest.mark.provisions,
    pytest.mark.usefixtures("prefect_api", "forked_contenders", "disturbed_blocks"),
]


def _publish(built: Mapping[str, EnvironmentRecord], patched: pytest.MonkeyPatch) -> None:
    """Let the index have our versions 1.1 and 1.2, each with its environment, and 1.3: operations
    are then not asked again."""

    def resolve(request: Request, *given: object, **named: object) -> Release:
        version = str(request.version or "1.3")
        return Release(
            framework="jax",
            version=version,
            role="pinned",
            python=Path(built["1.2"].python),
            python_version=built["1.2"].python_version,
        )

    for room in ("running.plans", "experiments.releases.release"):
        patched.setattr(f"benchcore.{room}.resolve", resolve)
    patched.setattr(
        "benchcore.experiments.releases.release.find_previous_release", lambda *given: "1.1"
    )
    patched.setattr(
        "benchcore.running.duels.provision", lambda release, *given, **named: built[release.version]
    )


def _make_profile(*given: object) -> Profile:
    match = Match(workload="matmul", case="tiny_op", arms=(JAX_NEWEST,), expected_s=5)
    limits = DuelLimits(starts=2, rounds=4, block_ms=10.0, warm_up_limit_s=0.5, compilations=2)
    return Profile(name="ci", matches=(match,), limits=limits)


def test_a_release_that_is_slower_is_said_to_be_in_one_sentence(
    framework_environment: Callable[[str], EnvironmentRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = framework_environment("jax")
    slow = make_slow(tmp_path / "slow", Path(real.python), "jax")
    _publish(
        {
            "1.1": replace(real, key="1.1"),
            "1.2": replace(real, key="1.2", python=str(slow), packages={"jax": "1.2"}),
        },
        monkeypatch,
    )
    monkeypatch.setattr("benchcore.experiments.rounds.load_profile", _make_profile)
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path / "state"))
    spool_ceiling(open_state(tmp_path / "state"))
    with serve_webhook() as (url, alerts):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
        done = release("jax", "1.2", profile="ci", budget_minutes=5, return_state=True)
    assert done.is_completed(), done.message
    [alert] = alerts
    message = str(done.message)
    assert alert["text"] == message
    assert message.startswith("JAX 1.2 against 1.1: "), message
    assert "Matrix product, batch 1, fp32, tiny (JAX) takes " in message  # half a millisecond more
    rows = {row["metric"]: row for row in alert["certificates"]}
    step = rows["median_step_ns"]
    assert (step["certificate"], step["again"]) == ("worse", True), step
    assert step["high"] < -0.5
    assert rows["program_ops"]["certificate"] == "unchanged"
    assert ("package", "jax") in {(each["kind"], each["name"]) for each in alert["differences"]}
    assert alert["search"].startswith("deadheat bisect jax --workload matmul --case tiny_op ")
    _check_table(alert["certificates"])


def _check_table(certificates: list[dict[str, Any]]) -> None:
    """The run's page has the same rows."""
    with get_client(sync_client=True) as client:
        key = ArtifactFilterKey(any_=["release-jax"])
        (table,) = client.read_artifacts(artifact_filter=ArtifactFilter(key=key))
    assert json.loads(str(table.data)) == certificates

"""Automations on a real Prefect server: dead runs crash, missing nights are reported."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from deployed_flows import DAILY, filter_flow, list_few, read_automations
from prefect.automations import AutomationCore, CallWebhook, DoNothing, EventTrigger, Posture
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.deployments import run_deployment
from prefect.events import emit_event
from prefect.states import Completed, Failed, Running
from result_documents import make_history
from stored_histories import open_history

from benchcore.errors import UserError
from benchcore.state import open_state
from benchcore.store.history.suspicions import refresh_suspicions
from flows.measure_shard import measure_shard
from flows.server.automations import (
    HEARTBEAT_LIMIT,
    HEARTBEAT_S,
    MISSING,
    compute_missing_after,
    list_automations,
)
from flows.server.deployments import DeployOptions, make_pool
from tasks.artifacts import WAITED
from tasks.campaign_run import VOID
from tasks.pipeline import report_suspicions
from tasks.server.apply import Targets, apply
from tasks.server.prefect_server import TAG


def _dump_automations() -> dict[str, Any]:
    return {name: each.model_dump() for name, each in read_automations().items()}


@pytest.mark.usefixtures("server", "alerts")
def test_automations_are_declared_once_and_leave_no_orphans(
    wanted: DeployOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, pool = list_few(wanted), make_pool(wanted.site)
    assert apply(listed, pool, DAILY).alerts
    trigger = EventTrigger(expect={"nothing"}, posture=Posture.Reactive)
    with get_client(sync_client=True) as client:
        for name, tags in (("orphan", [TAG]), ("other", [])):
            made = AutomationCore(name=name, tags=tags, trigger=trigger, actions=[DoNothing()])
            client.create_automation(made)
        client.pause_automation(read_automations()["deadheat: zombie runs"].id)
    first = _dump_automations()
    assert apply(listed, pool, DAILY).removed == ("orphan",)
    first.pop("orphan")
    assert _dump_automations() == first and len(first) == 5
    assert not first["deadheat: zombie runs"]["enabled"]
    (missing,) = (each for name, each in first.items() if "missing" in name)
    assert missing["trigger"]["within"] == timedelta(hours=26)
    monkeypatch.delenv("DEADHEAT_WEBHOOK_URL")
    done = apply(listed, pool, DAILY)
    assert done.removed == ("deadheat: failed nights", "deadheat: missing nights")
    assert not done.alerts
    with pytest.raises(ValueError, match="Unable to find block document"):
        Webhook.load("deadheat-alerts", **WAITED)


@pytest.mark.usefixtures("server", "alerts")
def test_a_refused_automation_is_named_and_the_others_are_applied(wanted: DeployOptions) -> None:
    listed, pool = list_few(wanted), make_pool(wanted.site)
    apply(listed, pool, DAILY)
    before = _dump_automations()

    def list_bad(targets: Targets) -> list[AutomationCore]:
        assert targets.webhook is not None
        call = CallWebhook(block_document_id=targets.webhook, payload="{{ broken")
        found = list_automations(targets, missing_after=timedelta(hours=5))
        return [
            found[0].model_copy(update={"name": "bad", "actions": [call]}),
            *found[:-2],
            found[-1],
        ]

    with pytest.raises(UserError, match=r"refused 'bad': .*, then deploy again$"):
        apply(listed, pool, list_bad)
    after = _dump_automations()
    assert after[MISSING]["trigger"]["within"] == timedelta(hours=5)
    assert after.keys() == before.keys()  # nothing was removed
    apply(listed, pool, DAILY)
    assert _dump_automations() == before


@pytest.mark.parametrize(
    ("cron", "hours"), [("0 2 * * *", 26), ("0 2 * * 0", 170), ("0 */6 * * *", 8)]
)
def test_a_night_is_missing_two_hours_after_its_expected_end(cron: str, hours: int) -> None:
    assert compute_missing_after(cron, "Asia/Tokyo") == timedelta(hours=hours)


def test_a_run_may_miss_some_heartbeats_before_it_is_taken_for_dead() -> None:
    assert timedelta(seconds=3 * HEARTBEAT_S) < HEARTBEAT_LIMIT


def test_a_void_run_has_ended() -> None:
    targets = Targets(deployments={"confirm/confirm": uuid4()}, webhook=None, paused=False)
    (zombies,) = (each for each in DAILY(targets) if each.name == "deadheat: zombie runs")
    assert isinstance(zombies.trigger, EventTrigger)
    assert f"prefect.flow-run.{VOID}" in zombies.trigger.expect


@pytest.fixture
def watched(
    server: dict[str, str], wanted: DeployOptions, alerts: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Automations that report after ten seconds; what they post."""
    short = timedelta(seconds=10)
    rules = partial(list_automations, missing_after=short, limit=short)
    apply(list_few(wanted), make_pool(wanted.site), rules)
    with get_client(sync_client=True) as client:
        for each in read_automations().values():
            client.resume_automation(each.id)
    return alerts


def test_only_a_failed_or_missing_night_is_reported(
    watched: list[dict[str, Any]],
) -> None:
    question = {"question": {"workload": "noop", "use_case": "op"}}
    void, night = (run_deployment("nightly/nightly", timeout=0) for _ in range(2))
    requested = run_deployment("compare/compare", parameters=question, timeout=0)
    with get_client(sync_client=True) as client:
        alerted = Failed(name=VOID, message="the night sends this alert itself")
        client.set_flow_run_state(void.id, alerted, force=True)
        for run in (requested, night):
            failed = Failed(message='<!channel> & "co" {{ 1 }}')
            client.set_flow_run_state(run.id, failed, force=True)
    _wait(lambda: len(watched) >= 2)
    failed, missing = sorted(each["text"] for each in watched[:2])[::-1]
    assert failed == (
        f'The night {night.name} ended as Failed: &lt;!channel&gt; &amp; "co" {{{{ 1 }}}}'
    )
    assert missing == "No night has succeeded for 10 seconds"


def test_a_run_without_heartbeats_has_crashed(
    watched: list[dict[str, Any]], server: dict[str, str]
) -> None:
    """A process that is killed, and one whose run's state changes after its last heartbeat;
    another run is heard of all the time, and a shard's job is suspended by Slurm."""
    alive = run_deployment("nightly/nightly", timeout=0).id
    question = {"question": {"workload": "noop", "use_case": "op"}}
    changed = run_deployment("compare/compare", parameters=question, timeout=0).id
    dead = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "sleeping_flow.py")],
        env={**os.environ, **server},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert dead.stdout is not None
    with get_client(sync_client=True) as client:
        for each in (alive, changed):
            client.set_flow_run_state(each, Running(), force=True)
        _send_heartbeat(shard := _start_shard(client), measure_shard.name)  # silent for longest
        killed = UUID(dead.stdout.readline().strip())
        _wait(lambda: _has_event(killed, "prefect.flow-run.heartbeat"))
        dead.kill()
        dead.communicate()
        _send_heartbeat(changed)
        _wait(lambda: _has_event(changed, "prefect.flow-run.heartbeat"))
        client.set_flow_run_state(changed, Running(message="so they say"), force=True)

        def are_over() -> bool:
            _send_heartbeat(alive)
            states = {client.read_flow_run(each).state_type for each in (killed, changed)}
            return states == {StateType.CRASHED}

        _wait(are_over, every_s=2)
        for each in (killed, changed):
            found = client.read_flow_run(each).state
            assert found is not None and found.message is not None
            assert found.message.startswith("no heartbeat for 10 seconds")
        for each in (alive, shard):
            assert client.read_flow_run(each).state_type is StateType.RUNNING
            client.set_flow_run_state(each, Completed(), force=True)


@pytest.mark.usefixtures("watched")
def test_suspicions_that_a_night_leaves_open_are_confirmed(tmp_path: Path) -> None:
    quiet, shifted = open_state(tmp_path / "quiet"), open_state(tmp_path / "shifted")
    logs = np.random.default_rng(4).normal(0.2, 0.005, 24)
    for state, moves in ((quiet, 0.0), (shifted, 0.06)):
        history = make_history((logs + moves * (np.arange(24) >= 16)).tolist())
        engine = open_history(state, history)
        refresh_suspicions(engine)
        engine.dispose()

    def count() -> int:
        with get_client(sync_client=True) as client:
            return len(client.read_flow_runs(flow_filter=filter_flow("confirm")))

    assert count() == 0
    assert report_suspicions("night", str(quiet.root)) == 0
    assert report_suspicions("night", str(shifted.root)) == 1
    _wait(lambda: count() == 1)
    with get_client(sync_client=True) as client:
        (run,) = client.read_flow_runs(flow_filter=filter_flow("confirm"))
    assert run.parameters == {"profile": "ci", "site": "local"} and run.work_queue_name == "night"
    time.sleep(3)
    assert count() == 1  # the quiet one started none


def _has_event(run: UUID, event: str) -> bool:
    with get_client(sync_client=True) as client:
        sought = {"event": {"name": [event]}, "resource": {"id": [f"prefect.flow-run.{run}"]}}
        return bool(
            client.request("POST", "/events/filter", json={"filter": sought}).json()["events"]
        )


def _start_shard(client: SyncPrefectClient) -> UUID:
    """A shard's run that runs, with our tag, as a deployment's has."""
    parameters = {"campaign": "night", "shard": "0" * 16, "token": "0" * 16}
    run = client.create_flow_run(measure_shard, parameters=parameters, tags=[TAG])
    client.set_flow_run_state(run.id, Running(), force=True)
    return run.id


def _send_heartbeat(run: UUID, flow_name: str = "nightly") -> None:
    """As Prefect's engine does."""
    named = {"prefect.resource.role": "flow", "prefect.resource.name": flow_name}
    emit_event(
        "prefect.flow-run.heartbeat",
        resource={"prefect.resource.id": f"prefect.flow-run.{run}"},
        related=[
            {"prefect.resource.id": f"prefect.flow.{flow_name}", **named},
            {"prefect.resource.id": f"prefect.tag.{TAG}", "prefect.resource.role": "tag"},
        ],
    )


def _wait(condition: Callable[[], bool], every_s: float = 0.5) -> None:
    until = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < until, "timed out"
        time.sleep(every_s)

"""Deployments on a real Prefect server: applying is idempotent, and a refusal names its object."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from package_index import serve_index
from prefect import flow, task
from prefect.automations import AutomationCore, CallWebhook, DoNothing, EventTrigger, Posture
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments import run_deployment
from prefect.deployments.runner import RunnerDeployment
from prefect.events import emit_event
from prefect.events.schemas.automations import Automation
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.futures import wait
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Completed, Failed, Running
from prefect_server import serve_prefect
from result_documents import make_history, make_plan
from stored_histories import open_history
from webhooks import serve_webhook

from benchcore.errors import UserError
from benchcore.planning.matrix import load_plan
from benchcore.protocol import EnvironmentRecord
from benchcore.running.shards import Shard
from benchcore.running.sites import load_site
from benchcore.state import State, open_state
from benchcore.store.history.suspicions import refresh_suspicions
from flows.backfill import backfill
from flows.cli.main import main
from flows.compare import compare
from flows.confirm import confirm
from flows.measure_shard import measure_shard
from flows.publish import publish
from flows.server.automations import (
    HEARTBEAT_LIMIT,
    HEARTBEAT_S,
    MISSING,
    compute_missing_after,
    list_automations,
)
from flows.server.deployments import DeployOptions, list_deployments, list_shard_pools, make_pool
from flows.server.temporary_api import _delete_old_runs, _free_measure_limit
from tasks.artifacts import WAITED, shorten_id
from tasks.campaign_run import VOID
from tasks.measurement import MEASURE_LIMIT
from tasks.pipeline import report_suspicions
from tasks.server.apply import Applied, Targets, apply, read_schedule
from tasks.server.available_versions import update_forms
from tasks.server.pausing import set_paused
from tasks.server.prefect_server import TAG, has_worker
from tasks.slurm.shards import Dispatch, find_runs

_FIELDS = (
    *("flow_id", "name", "version", "description", "tags", "parameters", "job_variables"),
    *("work_pool_name", "work_queue_name", "path", "entrypoint", "pull_steps", "paused"),
    *("parameter_openapi_schema", "enforce_parameter_schema", "concurrency_options"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("deployments")
    with serve_prefect(folder, {"PATH": "/usr/bin:/bin"}) as environment:
        environment["DEADHEAT_STATE"] = str(folder / "state")
        with (
            pytest.MonkeyPatch.context() as patched,
            temporary_settings({PREFECT_API_URL: environment["PREFECT_API_URL"]}),
        ):
            patched.setenv("PREFECT_API_URL", environment["PREFECT_API_URL"])
            yield environment


@pytest.fixture
def wanted(tmp_path: Path) -> DeployOptions:
    local = load_site("local")
    return DeployOptions(
        site=local, profile="ci", cron="0 2 * * *", timezone="Asia/Tokyo", root=tmp_path
    )


@flow(name="stranger")
def stranger(number: int) -> None:
    """A flow that is not ours."""


def _few(wanted: DeployOptions) -> list[RunnerDeployment]:
    """The deployments that tests look at; all of them take twice as long."""
    flows = ("nightly", "compare", "watch-releases", "confirm", "backfill", "measure-shard")
    return [each for each in list_deployments(wanted) if each.flow_name in flows]


def _read() -> dict[str, DeploymentResponse]:
    with get_client(sync_client=True) as client:
        return {each.name: each for each in client.read_deployments()}


def _dump() -> dict[str, Any]:
    """Everything that was requested, and the id that links lead to."""
    return {
        name: {
            # Prefect returns None at first, and [] later, if there is nothing.
            **{field: getattr(each, field) or None for field in ("id", *_FIELDS)},
            "limit": each.global_concurrency_limit and each.global_concurrency_limit.limit,
            "schedules": [(s.schedule, s.active, s.slug, s.parameters) for s in each.schedules],
        }
        for name, each in _read().items()
    }


def _call(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[object, str]:
    """Exit code, and what was printed on stdout and stderr."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr("sys.argv", ["deadheat", *command])
        main()
    printed = capsys.readouterr()
    return ended.value.code, " ".join(f"{printed.out} {printed.err}".split())


@pytest.mark.usefixtures("server")
def test_deploying_again_changes_only_what_differs(
    wanted: DeployOptions,
) -> None:
    apply(list_deployments(wanted), make_pool(wanted.site))
    first = _dump()
    night = first["nightly"]
    (schedule, active, slug, _) = night["schedules"][0]
    assert (schedule.cron, schedule.timezone, active, slug) == (
        *("0 2 * * *", "Asia/Tokyo", True, "night"),
    )
    given = {"profile": "ci", "site": "local", "timezone": "Asia/Tokyo"}
    assert night["parameters"] == given and night["limit"] == 1
    assert night["job_variables"]["env"]["DEADHEAT_STATE"] == str(wanted.root)
    assert all(each["enforce_parameter_schema"] and each["description"] for each in first.values())
    apply(list_deployments(wanted), make_pool(wanted.site))
    assert _dump() == first
    assert not has_worker(TAG) and not has_worker("a pool that is not there yet")


@pytest.mark.usefixtures("server")
def test_orphans_are_deleted_foreign_deployments_stay_and_paused_ones_stay_paused(
    wanted: DeployOptions,
) -> None:
    pool = make_pool(wanted.site)
    apply(_few(wanted), pool)
    orphan = stranger.to_deployment("orphan", tags=[TAG], work_pool_name=pool.name)
    other = stranger.to_deployment("other", work_pool_name=pool.name)
    for each in (orphan, other):
        each.apply()
    night = _read()["nightly"]
    with get_client(sync_client=True) as client:
        client.update_deployment_schedule(night.id, night.schedules[0].id, active=False)

    assert apply(_few(wanted), pool).removed == ("orphan",)

    found = _read()
    assert "orphan" not in found and found["other"].name == "other"
    assert [each.active for each in found["nightly"].schedules] == [False]


@pytest.mark.usefixtures("server")
def test_a_refused_deployment_is_named_and_deploying_again_completes_it(
    wanted: DeployOptions,
) -> None:
    pool = make_pool(wanted.site)
    apply(_few(wanted), pool)
    changed = _few(dataclasses.replace(wanted, profile="laptop"))
    orphan, new, bad = (
        stranger.to_deployment(name, tags=[TAG], work_pool_name=pool.name, parameters=given)
        for name, given in (("orphan", {}), ("new", {}), ("bad", {"number": "three"}))
    )
    orphan.apply()
    with pytest.raises(UserError, match=r"refused 'stranger/bad': .*, then deploy again$"):
        apply([bad, *changed, new], pool)
    found = _read()
    assert "bad" not in found and {"orphan", "new"} < found.keys()  # nothing was removed
    assert found["nightly"].parameters["profile"] == "laptop"
    bad.parameters = {"number": 3}
    assert apply([bad, *changed, new], pool).removed == ("orphan",)
    assert _read()["bad"].parameters == {"number": 3}
    assert apply(changed, pool).removed == ("bad", "new")


@pytest.mark.usefixtures("server")
def test_forms_list_the_environments_of_their_state_folder(
    wanted: DeployOptions, tmp_path: Path
) -> None:
    apply(_few(wanted), make_pool(wanted.site))
    state, other = open_state(wanted.root), open_state(tmp_path / "other")
    for version in ("0.9.2", "0.12.0+cpu", "0.11.0"):
        _build(state, "jax", version)
    _build(other, "torch", "2.15.0")
    plain = _offered()
    for each in (state, other, state):
        update_forms(each)
        assert _offered() == {
            "By name": ["newest", "previous"],
            "JAX built here": ["0.12.0", "0.11.0", "0.9.2"],
            "Any published": None,
        }
        if each is state:
            _request_run("0.11.0")
    with pytest.raises(PrefectHTTPStatusError, match="409"):
        _request_run("0.11.0; reboot")
    apply(_few(wanted), make_pool(wanted.site))
    assert _offered() == plain


def _build(state: State, framework: str, version: str) -> None:
    """What is left of an environment that was built."""
    folder = state.environments / f"{framework}-{version}"
    folder.mkdir()
    record = EnvironmentRecord(
        name=folder.name,
        key=version,
        lock_sha256=None,
        python=sys.executable,
        python_version="3.13",
        build="cpu",
        packages={framework: version},
    )
    (folder / "environment.json").write_text(json.dumps(dataclasses.asdict(record)))


def _offered() -> dict[str, list[str] | None]:
    sides = (_read()["compare"].parameter_openapi_schema or {})["definitions"]["Side"]
    return {way["title"]: way.get("enum") for way in sides["properties"]["version"]["anyOf"]}


def _request_run(version: str) -> None:
    side = {"framework": "jax", "version": version}
    question = {"workload": "mlp", "use_case": "infer", "a": side}
    requested = run_deployment("compare/compare", parameters={"question": question}, timeout=0)
    with get_client(sync_client=True) as client:
        client.delete_flow_run(requested.id)


@pytest.fixture
def pools(wanted: DeployOptions) -> Iterator[DeployOptions]:
    """What is requested for a site with two pools; nothing of it is left."""
    yield dataclasses.replace(wanted, site=load_site("slurm-local"))
    found = _read()
    with get_client(sync_client=True) as client:
        for name in set(POOLS) & found.keys():
            client.delete_deployment(found[name].id)
        for name in set(POOLS) & _list_pools():
            client.delete_work_pool(name)


DAILY = partial(list_automations, missing_after=timedelta(hours=26))
POOLS = ("slurm-local-h100", "slurm-local-urgent")


def _apply(wanted: DeployOptions, *more: RunnerDeployment) -> Applied:
    flows = ("nightly", "compare", "confirm", "measure-shard")
    listed = [each for each in _few(wanted) if each.flow_name in flows]
    shard_pools = list_shard_pools(wanted)
    return apply([*listed, *more], make_pool(wanted.site), DAILY, shard_pools)


def _list_pools() -> set[str]:
    with get_client(sync_client=True) as client:
        return {each.name for each in client.read_work_pools()}


@pytest.mark.usefixtures("server")
def test_each_pool_of_a_slurm_site_has_a_deployment_that_measures(
    wanted: DeployOptions, pools: DeployOptions
) -> None:
    done = _apply(pools)
    assert {f"measure-shard/{name}" for name in POOLS} < set(done.present)
    first = _dump()
    for name in POOLS:
        measure = first[name]
        pool = pools.site.pools[name.removeprefix("slurm-local-")]
        assert measure["work_pool_name"] == name and measure["tags"] == [TAG, "slurm-local"]
        assert measure["entrypoint"] == "flows.measure_shard.measure_shard"
        job = measure["job_variables"]
        assert (job["minutes"], job["folder"]) == (pool.minutes, str(pools.root))
        assert job["env"]["DEADHEAT_STATE"] == str(pools.root)
        with get_client(sync_client=True) as client:
            assert client.read_work_pool(name).type == "slurm"
    assert _apply(pools).removed == () and _dump() == first
    assert _apply(wanted).removed == POOLS
    assert not set(POOLS) & set(_read()) and set(POOLS) < _list_pools()


@pytest.mark.usefixtures("server")
def test_a_work_pool_of_another_type_is_refused_and_left_alone(
    wanted: DeployOptions, pools: DeployOptions
) -> None:
    """The other pools and the deployments are applied; a namesake that a campaign made is kept."""
    _apply(wanted)
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=POOLS[1], type="process"))
        with pytest.raises(UserError, match="'slurm-local-urgent' of type 'slurm', got type 'proc"):
            _apply(pools)
        assert client.read_work_pool(POOLS[1]).type == "process"
        assert (
            POOLS[0] in _list_pools() and client.read_work_pool("deadheat").concurrency_limit == 8
        )
        client.delete_work_pool(POOLS[1])
        made = _hand_over(pools, client)
        _apply(pools)
        assert _dump()[POOLS[0]]["id"] == made.deployment_id


@pytest.mark.usefixtures("server")
def test_a_campaign_uses_the_deployment_of_its_pool_and_repairs_one_that_differs(
    pools: DeployOptions,
) -> None:
    _apply(pools)
    first = _dump()
    with get_client(sync_client=True) as client:
        run = _hand_over(pools, client)
        assert run.deployment_id == first["slurm-local-h100"]["id"] and _dump() == first
        assert run.work_pool_name == "slurm-local-h100"
        other = stranger.to_deployment("slurm-local-h100", work_pool_name="deadheat")
        shards, strange = first["slurm-local-h100"], other.entrypoint
        fields = {name: shards[name] for name in ("flow_id", "name", "tags", "description")}
        client.create_deployment(**fields, entrypoint=strange, work_pool_name="deadheat")
        assert _hand_over(pools, client, "1").deployment_id == shards["id"]
        repaired = _dump()["slurm-local-h100"]
        names = ("entrypoint", "work_pool_name", "parameter_openapi_schema", *fields)
        assert {each: repaired[each] for each in names} == {each: shards[each] for each in names}
        client.delete_deployment(shards["id"])
        run = _hand_over(pools, client, "2")
        assert run.deployment_id == _read()["slurm-local-h100"].id


@pytest.mark.usefixtures("server")
def test_shards_of_running_campaigns_are_not_paused(pools: DeployOptions) -> None:
    _apply(pools)
    assert not set(POOLS) & set(set_paused(True, "deadheat", set(), "measure-shard").deployments)
    _apply(pools)
    paused = {name for name, each in _read().items() if each.paused}
    assert "nightly" in paused and not paused & set(POOLS)
    set_paused(False, "deadheat", set(), "measure-shard")


@pytest.mark.usefixtures("server", "alerts")
def test_deployments_paused_by_people_stay_paused_after_resume(wanted: DeployOptions) -> None:
    apply(_few(wanted), make_pool(wanted.site), DAILY)
    with get_client(sync_client=True) as client:
        client.pause_deployment(_read()["backfill"].id)
        client.pause_automation(_read_automations()[MISSING].id)
        for _ in range(2):
            set_paused(True, "deadheat", {MISSING}, "measure-shard")
        set_paused(False, "deadheat", {MISSING}, "measure-shard")
        assert {name for name, each in _read().items() if each.paused} == {"backfill"}
        assert not _read_automations()[MISSING].enabled
        set_paused(True, "deadheat", set(), "measure-shard")
        client.resume_deployment(_read()["backfill"].id)
        set_paused(False, "deadheat", set(), "measure-shard")
        client.resume_automation(_read_automations()[MISSING].id)
    assert not any(each.paused for each in _read().values())


@pytest.mark.usefixtures("server")
def test_every_tick_of_a_scheduled_question_has_a_campaign_of_its_own(
    wanted: DeployOptions,
) -> None:
    apply(_few(wanted), make_pool(wanted.site))
    question = {"question": {"workload": "noop", "use_case": "op"}}
    weekly = CronSchedule(cron="0 3 * * 0", timezone="UTC")
    with get_client(sync_client=True) as client:
        asked = client.read_deployment_by_name("compare/compare").id
        schedule = {"schedule": weekly.model_dump(mode="json"), "parameters": question}
        path = f"/deployments/{asked}/schedules"
        (made,) = client.request("POST", path, json=[schedule]).json()
        client.request("POST", f"/deployments/{asked}/schedule", json={"min_runs": 3})
        runs = client.read_flow_runs(flow_filter=_named("compare"))
        runs = [each for each in runs if each.auto_scheduled]
        client.request("DELETE", f"{path}/{made['id']}")  # and its runs
    assert len(runs) >= 3 and len({shorten_id(each.id) for each in runs}) == len(runs)


@pytest.mark.usefixtures("server")
def test_a_cancelled_question_returns_its_allocations(pools: DeployOptions) -> None:
    _apply(pools)
    question = {"question": {"workload": "noop", "use_case": "op"}}
    requested = run_deployment("compare/compare", parameters=question, timeout=0)
    (hook,) = compare.on_cancellation_hooks
    with get_client(sync_client=True) as client:
        waits = _hand_over(pools, client, "3", f"compare-noop-{shorten_id(requested.id)}")
        runs = _hand_over(pools, client, "4", f"compare-noop-{shorten_id(requested.id)}")
        other = _hand_over(pools, client, "5", "compare-noop-0")
        client.set_flow_run_state(runs.id, Running(), force=True)
        hook(compare, client.read_flow_run(requested.id), Cancelling())
        states = [client.read_flow_run(each.id).state_type for each in (waits, runs, other)]
        assert states == [StateType.CANCELLED, StateType.CANCELLING, StateType.SCHEDULED]


def _hand_over(
    wanted: DeployOptions, client: SyncPrefectClient, number: str = "0", campaign: str = "night"
) -> FlowRun:
    """The run of a campaign's shard."""
    plan = make_plan(campaign, site="slurm-local")
    fields = {"schema": 1, "token": "", "campaign": campaign, "pool": "h100", "num_guessed": 0}
    shard = Shard(id=number * 16, seconds={}, **fields)
    dispatch = Dispatch(plan, open_state(wanted.root), wanted.site, {}, client)
    with pytest.raises(UserError, match="found none; start one where sbatch works"):
        dispatch.open_pool()
    dispatch.submit([shard], measure_shard)
    ((_, run),) = find_runs([shard], client)
    return run


@pytest.mark.usefixtures("server")
def test_measuring_tasks_of_a_server_do_not_overlap(wanted: DeployOptions) -> None:
    """Those of jobs do: each has an allocation of its own."""
    apply(_few(wanted)[:1], make_pool(wanted.site))
    spans: dict[str, list[tuple[float, float]]] = {tag: [] for tag in ("measure", "measure-in-job")}

    @task
    def measures(tag: str) -> None:
        began = time.monotonic()
        time.sleep(1)
        spans[tag].append((began, time.monotonic()))

    @flow
    def campaign() -> None:
        wait([measures.with_options(tags={tag}).submit(tag) for tag in spans for _ in range(2)])

    campaign()
    overlap = {tag: max(each)[0] < min(each)[1] for tag, each in spans.items()}
    assert overlap == {"measure": False, "measure-in-job": True}


@pytest.mark.usefixtures("server")
def test_a_temporary_server_frees_the_limit_of_a_run_that_was_killed(
    wanted: DeployOptions,
) -> None:
    apply(_few(wanted)[:1], make_pool(wanted.site))
    with get_client(sync_client=True) as client:

        def read() -> int:
            return client.read_global_concurrency_limit_by_name(MEASURE_LIMIT).active_slots

        client.increment_concurrency_slots([MEASURE_LIMIT], slots=1, mode="concurrency")
        assert read() == 1
        _free_measure_limit(client)
        assert read() == 0
        client.delete_global_concurrency_limit_by_name(MEASURE_LIMIT)
        _free_measure_limit(client)  # there is none


@pytest.mark.usefixtures("server")
def test_a_temporary_server_forgets_runs_of_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    @flow
    def measured() -> None: ...

    with get_client(sync_client=True) as client:
        ended, waiting = (client.create_flow_run(measured) for _ in range(2))
        client.set_flow_run_state(ended.id, Completed(), force=True)
        _delete_old_runs(client)
        client.read_flow_run(ended.id)
        monkeypatch.setattr("flows.server.temporary_api._KEPT", timedelta(days=-1))  # later on
        _delete_old_runs(client)
        with pytest.raises(ObjectNotFound):
            client.read_flow_run(ended.id)
        client.delete_flow_run(waiting.id)


@pytest.mark.usefixtures("server")
def test_a_question_of_a_person_runs_before_the_night(wanted: DeployOptions) -> None:
    pool = make_pool(wanted.site)
    apply(_few(wanted), pool)
    question = {"question": {"workload": "noop", "use_case": "op"}}
    with get_client(sync_client=True) as client:  # questions of other tests would go first
        for left_over in client.read_flow_runs(limit=200):
            client.delete_flow_run(left_over.id)
    runs = [
        run_deployment("nightly/nightly", timeout=0),
        run_deployment("compare/compare", parameters=question, timeout=0),
    ]
    with get_client(sync_client=True) as client:
        queues = client.read_work_queues(work_pool_name=pool.name)
        response = client.request(
            "POST",
            "/work_pools/{name}/get_scheduled_flow_runs",
            path_params={"name": pool.name},
            json={"limit": 1},
        )
        (first,) = response.json()
        for run in runs:
            client.delete_flow_run(run.id)
    priorities = {queue.name: queue.priority for queue in queues}
    assert priorities["people"] < priorities["releases"] < priorities["night"]
    assert first["flow_run"]["id"] == str(runs[1].id)


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What is posted to the webhook."""
    with serve_webhook() as (url, posted):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
        yield posted


def _read_automations() -> dict[str, Automation]:
    with get_client(sync_client=True) as client:
        return {each.name: each for each in client.read_automations()}


def _dump_automations() -> dict[str, Any]:
    return {name: each.model_dump() for name, each in _read_automations().items()}


@pytest.mark.usefixtures("server", "alerts")
def test_automations_are_declared_once_and_leave_no_orphans(
    wanted: DeployOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, pool = _few(wanted), make_pool(wanted.site)
    assert apply(listed, pool, DAILY).alerts
    trigger = EventTrigger(expect={"nothing"}, posture=Posture.Reactive)
    with get_client(sync_client=True) as client:
        for name, tags in (("orphan", [TAG]), ("other", [])):
            made = AutomationCore(name=name, tags=tags, trigger=trigger, actions=[DoNothing()])
            client.create_automation(made)
        client.pause_automation(_read_automations()["deadheat: zombie runs"].id)
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
    listed, pool = _few(wanted), make_pool(wanted.site)
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
    apply(_few(wanted), make_pool(wanted.site), rules)
    with get_client(sync_client=True) as client:
        for each in _read_automations().values():
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
            return len(client.read_flow_runs(flow_filter=_named("confirm")))

    assert count() == 0
    assert report_suspicions("night", str(quiet.root)) == 0
    assert report_suspicions("night", str(shifted.root)) == 1
    _wait(lambda: count() == 1)
    with get_client(sync_client=True) as client:
        (run,) = client.read_flow_runs(flow_filter=_named("confirm"))
    assert run.parameters == {"profile": "ci", "site": "local"} and run.work_queue_name == "night"
    time.sleep(3)
    assert count() == 1  # the quiet one started none


@pytest.mark.usefixtures("alerts")
def test_pausing_stops_new_runs_and_reports_running_ones(
    server: dict[str, str], wanted: DeployOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = make_pool(wanted.site)
    apply(_few(wanted), pool, DAILY)
    state = ("--state", server["DEADHEAT_STATE"])
    watch = _read()["watch-releases"]
    runs = [run_deployment("nightly/nightly", timeout=0)]
    with get_client(sync_client=True) as client:
        client.update_deployment_schedule(watch.id, watch.schedules[0].id, active=False)
        client.set_flow_run_state(runs[0].id, Running(), force=True)
        question = {"question": {"workload": "noop", "use_case": "op"}}
        runs.append(run_deployment("compare/compare", parameters=question, timeout=0))
        for _ in range(2):  # again, it changes nothing
            code, printed = _call(capsys, "pause", *state)
            assert code == 0, printed
            assert f"under way, continues: {runs[0].name} (running)" in printed
            assert f"waits: {runs[1].name} (scheduled)" in printed
            assert _stand(client, pool.name) == {True}
        apply(_few(wanted), pool, DAILY)
        assert _stand(client, pool.name) == {True}
        code, printed = _call(capsys, "resume", *state)
        assert code == 0 and f"starts: {runs[1].name}" in printed
        assert _stand(client, pool.name) == {False}
        for run in runs:
            client.delete_flow_run(run.id)
    found = _read()
    assert [each.active for each in found["watch-releases"].schedules] == [False]
    assert [each.active for each in found["backfill"].schedules] == []


@pytest.mark.usefixtures("server", "alerts")
def test_an_automation_created_during_a_pause_starts_with_resume(
    wanted: DeployOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, pool = _few(wanted), make_pool(wanted.site)
    with monkeypatch.context() as without_webhook:
        without_webhook.delenv("DEADHEAT_WEBHOOK_URL")
        apply(listed, pool, DAILY)
    assert MISSING not in _read_automations()
    set_paused(True, pool.name, {MISSING}, "measure-shard")
    apply(listed, pool, DAILY)
    enabled = {name: each.enabled for name, each in _read_automations().items()}
    assert not enabled.pop(MISSING) and enabled["deadheat: failed nights"]
    set_paused(False, pool.name, {MISSING}, "measure-shard")
    assert _read_automations()[MISSING].enabled


@pytest.mark.usefixtures("server")
def test_a_backfill_plans_the_versions_that_can_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    monkeypatch.setattr("tasks.experiment_runs.run_campaign", lambda name, root: {"failures": []})
    with serve_index() as index:
        for name, value in index.settings(tmp_path).items():
            monkeypatch.setenv(name, value)
        index.publish("jax", "1.2", "1.3", "1.4")
        index.needs["jax", "1.3"] = "nowhere-to-be-found"
        done = backfill("jax", versions=3, profile="ci", return_state=True)
        refused = backfill("jax", below="1.0", profile="ci", return_state=True)
    assert done.message == "jax 1.4, 1.2, 1.1" and done.is_completed(), done
    assert refused.is_failed() and "none of 0 can be installed here" in str(refused.message)
    (path,) = tmp_path.glob("campaigns/backfill-jax-*/plan.json")
    (duel,) = load_plan(path).duels
    names = [each.name for each in duel.contenders]
    assert [each.split("-")[-1] for each in names] == ["1.4", "1.2", "1.1", "1.1", "1.0"]
    with get_client(sync_client=True) as client:
        (artifact,) = client.request("POST", "/artifacts/filter", json={}).json()
    rows = {row["version"]: row for row in json.loads(artifact["data"])}
    assert rows["1.3"]["measured"] == "no" and "nowhere-to-be-found" in rows["1.3"]["why not"]


@pytest.mark.usefixtures("server")
def test_missing_parts_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    assert confirm(return_state=True).message == "no suspicion is open"
    unknown = confirm(suspicions=[7], return_state=True)
    assert unknown.is_failed() and str(unknown.message).startswith("no suspicion 7; ")
    backwards = confirm(looks=[8, 5], return_state=True)
    assert backwards.is_failed() and "increasing numbers of starts" in str(backwards.message)
    nothing = publish(return_state=True)
    assert nothing.is_failed() and "none has left a result" in str(nothing.message)


@pytest.mark.usefixtures("server")
def test_pausing_without_deployments_is_reported() -> None:
    with pytest.raises(UserError, match="'nowhere' to pause or resume, but this server has none"):
        set_paused(True, "nowhere", set(), "measure-shard")


def _stand(client: SyncPrefectClient, pool: str) -> set[bool]:
    """Whether each of what can be paused is."""
    missing = _read_automations()["deadheat: missing nights"]
    ours = (each for each in _read().values() if TAG in each.tags)
    return {
        client.read_work_pool(pool).is_paused,
        not missing.enabled,
        *(each.paused for each in ours),
    }


def _named(flow: str) -> FlowFilter:
    return FlowFilter(name=FlowFilterName(any_=[flow]))


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


@pytest.mark.parametrize(
    ("arguments", "url", "words"),
    [
        (("--timezone", "Mars/Base"), None, "'Mars/Base'; write for example --cron"),
        (("--profile", "nope"), None, "no profile 'nope'"),
        (("--site", "nope"), None, "no site 'nope'"),
        ((), "http://127.0.0.1:9/api", "did not answer"),
        ((), "", "got no PREFECT_API_URL; start one"),
    ],
)
def test_bad_input_is_one_paragraph_and_nothing_is_deployed(
    arguments: tuple[str, ...],
    url: str | None,
    words: str,
    server: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = _dump()
    if url is not None:
        monkeypatch.setenv("PREFECT_API_URL", url)
    code, printed = _call(capsys, "deploy", *arguments, "--state", server["DEADHEAT_STATE"])
    assert code == 2 and words in printed, printed
    assert "Traceback" not in printed and _dump() == before


@pytest.mark.parametrize("cron", ["x", "* * * * * *", "61 * * * *", "0 2 * *", "$(id)"])
def test_an_invalid_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(UserError, match="wanted five fields of cron"):
        read_schedule(cron, "UTC", "night")


@pytest.mark.parametrize(
    ("status", "version", "words"),
    [(401, "3.8.8", "set PREFECT_API_AUTH_STRING"), (200, "2.0", "own version")],
)
def test_a_server_that_rejects_us_is_reported(
    status: int, version: str, words: str, monkeypatch: pytest.MonkeyPatch, wanted: DeployOptions
) -> None:
    """One that wants a password, and one of another major version."""
    server = HTTPServer(("127.0.0.1", 0), _answering(status, version))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    try:
        with (
            temporary_settings({PREFECT_API_URL: url}),
            pytest.raises(UserError, match=words) as refusal,
        ):
            apply(_few(wanted), make_pool(wanted.site))
    finally:
        server.shutdown()
        server.server_close()
    assert "\n" not in str(refusal.value)


def _answering(status: int, version: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            is_open = self.path.endswith("/health")
            body = json.dumps(version if self.path.endswith("version") else {}).encode()
            self.send_response(200 if is_open or self.path.endswith("version") else status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: object) -> None: ...

    return Handler

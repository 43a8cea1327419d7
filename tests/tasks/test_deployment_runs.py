"""Runs on a real Prefect server wait for a pause, a limit and what is more urgent."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path

import pytest
from deployed_flows import (
    DAILY,
    call_deadheat,
    filter_flow,
    list_few,
    read_automations,
    read_deployments,
)
from package_index import serve_index
from prefect import flow, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.futures import wait
from prefect.states import Completed, Running

from benchcore.errors import UserError
from benchcore.planning.matrix import load_plan
from flows.backfill import backfill
from flows.confirm import confirm
from flows.publish import publish
from flows.server.automations import MISSING
from flows.server.deployments import DeployOptions, make_pool
from flows.server.temporary_api import _delete_old_runs, _free_measure_limit
from tasks.artifacts import shorten_id
from tasks.measurement import MEASURE_LIMIT
from tasks.server.apply import apply
from tasks.server.pausing import set_paused
from tasks.server.prefect_server import TAG


@pytest.mark.usefixtures("server", "alerts")
def test_deployments_paused_by_people_stay_paused_after_resume(wanted: DeployOptions) -> None:
    apply(list_few(wanted), make_pool(wanted.site), DAILY)
    with get_client(sync_client=True) as client:
        client.pause_deployment(read_deployments()["backfill"].id)
        client.pause_automation(read_automations()[MISSING].id)
        for _ in range(2):
            set_paused(True, "deadheat", {MISSING}, "measure-shard")
        set_paused(False, "deadheat", {MISSING}, "measure-shard")
        assert {name for name, each in read_deployments().items() if each.paused} == {"backfill"}
        assert not read_automations()[MISSING].enabled
        set_paused(True, "deadheat", set(), "measure-shard")
        client.resume_deployment(read_deployments()["backfill"].id)
        set_paused(False, "deadheat", set(), "measure-shard")
        client.resume_automation(read_automations()[MISSING].id)
    assert not any(each.paused for each in read_deployments().values())


@pytest.mark.usefixtures("server")
def test_every_tick_of_a_scheduled_question_has_a_campaign_of_its_own(
    wanted: DeployOptions,
) -> None:
    apply(list_few(wanted), make_pool(wanted.site))
    question = {"question": {"workload": "noop", "use_case": "op"}}
    weekly = CronSchedule(cron="0 3 * * 0", timezone="UTC")
    with get_client(sync_client=True) as client:
        asked = client.read_deployment_by_name("compare/compare").id
        schedule = {"schedule": weekly.model_dump(mode="json"), "parameters": question}
        path = f"/deployments/{asked}/schedules"
        (made,) = client.request("POST", path, json=[schedule]).json()
        client.request("POST", f"/deployments/{asked}/schedule", json={"min_runs": 3})
        runs = client.read_flow_runs(flow_filter=filter_flow("compare"))
        runs = [each for each in runs if each.auto_scheduled]
        client.request("DELETE", f"{path}/{made['id']}")  # and its runs
    assert len(runs) >= 3 and len({shorten_id(each.id) for each in runs}) == len(runs)


@pytest.mark.usefixtures("server")
def test_measuring_tasks_of_a_server_do_not_overlap(wanted: DeployOptions) -> None:
    """Those of jobs do: each has an allocation of its own."""
    apply(list_few(wanted)[:1], make_pool(wanted.site))
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
    apply(list_few(wanted)[:1], make_pool(wanted.site))
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
    apply(list_few(wanted), pool)
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


@pytest.mark.usefixtures("alerts")
def test_pausing_stops_new_runs_and_reports_running_ones(
    server: dict[str, str], wanted: DeployOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = make_pool(wanted.site)
    apply(list_few(wanted), pool, DAILY)
    state = ("--state", server["DEADHEAT_STATE"])
    watch = read_deployments()["watch-releases"]
    runs = [run_deployment("nightly/nightly", timeout=0)]
    with get_client(sync_client=True) as client:
        client.update_deployment_schedule(watch.id, watch.schedules[0].id, active=False)
        client.set_flow_run_state(runs[0].id, Running(), force=True)
        question = {"question": {"workload": "noop", "use_case": "op"}}
        runs.append(run_deployment("compare/compare", parameters=question, timeout=0))
        for _ in range(2):  # again, it changes nothing
            code, printed = call_deadheat(capsys, "pause", *state)
            assert code == 0, printed
            assert f"under way, continues: {runs[0].name} (running)" in printed
            assert f"waits: {runs[1].name} (scheduled)" in printed
            assert _stand(client, pool.name) == {True}
        apply(list_few(wanted), pool, DAILY)
        assert _stand(client, pool.name) == {True}
        code, printed = call_deadheat(capsys, "resume", *state)
        assert code == 0 and f"starts: {runs[1].name}" in printed
        assert _stand(client, pool.name) == {False}
        for run in runs:
            client.delete_flow_run(run.id)
    found = read_deployments()
    assert [each.active for each in found["watch-releases"].schedules] == [False]
    assert [each.active for each in found["backfill"].schedules] == []


@pytest.mark.usefixtures("server", "alerts")
def test_an_automation_created_during_a_pause_starts_with_resume(
    wanted: DeployOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, pool = list_few(wanted), make_pool(wanted.site)
    with monkeypatch.context() as without_webhook:
        without_webhook.delenv("DEADHEAT_WEBHOOK_URL")
        apply(listed, pool, DAILY)
    assert MISSING not in read_automations()
    set_paused(True, pool.name, {MISSING}, "measure-shard")
    apply(listed, pool, DAILY)
    enabled = {name: each.enabled for name, each in read_automations().items()}
    assert not enabled.pop(MISSING) and enabled["deadheat: failed nights"]
    set_paused(False, pool.name, {MISSING}, "measure-shard")
    assert read_automations()[MISSING].enabled


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
    missing = read_automations()["deadheat: missing nights"]
    ours = (each for each in read_deployments().values() if TAG in each.tags)
    return {
        client.read_work_pool(pool).is_paused,
        not missing.enabled,
        *(each.paused for each in ours),
    }

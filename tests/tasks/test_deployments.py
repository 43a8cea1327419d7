"""Deployments on a real Prefect server: what is wanted is there, and a refusal changes nothing."""

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
from uuid import UUID

import numpy as np
import pytest
from kept_histories import open_history
from package_index import serve_index
from prefect import flow
from prefect.automations import AutomationCore, CallWebhook, DoNothing, EventTrigger, Posture
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments import run_deployment
from prefect.events import emit_event
from prefect.events.schemas.automations import Automation
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Completed, Failed, Running
from prefect_server import serve_prefect
from result_documents import make_history
from webhooks import serve_webhook

from benchcore.errors import UserError
from benchcore.matrix import load_plan
from benchcore.sites import load_site
from benchcore.state import open_state
from benchcore.store.suspicions import refresh_suspicions
from flows.automations import HEARTBEAT_S, SILENCE, find_patience, list_automations
from flows.backfill import backfill
from flows.cli import main
from flows.confirmation import confirm
from flows.deployments import Wanted, list_deployments, make_pool
from flows.publication import publish
from tasks.automations import TAG, Targets
from tasks.deployments import _KEPT, deploy, has_worker, read_schedule
from tasks.pausing import set_paused
from tasks.steps import report_suspicions


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
def wanted(tmp_path: Path) -> Wanted:
    local = load_site("local")
    return Wanted(site=local, profile="ci", cron="0 2 * * *", timezone="Asia/Tokyo", root=tmp_path)


@flow(name="stranger")
def stranger(number: int) -> None:
    """A flow that is not ours."""


def _read() -> dict[str, DeploymentResponse]:
    with get_client(sync_client=True) as client:
        return {each.name: each for each in client.read_deployments()}


def _dump() -> dict[str, Any]:
    """All that was asked for, and the id that links lead to."""
    return {
        name: {
            # Prefect says None at first, and [] later, where there is nothing.
            **{field: getattr(each, field) or None for field in ("id", *_KEPT)},
            "limit": each.global_concurrency_limit and each.global_concurrency_limit.limit,
            "schedules": [(s.schedule, s.active, s.slug, s.parameters) for s in each.schedules],
        }
        for name, each in _read().items()
    }


def _call(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[object, str]:
    """Exit code, and what was said on stdout and stderr."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr("sys.argv", ["deadheat", *command])
        main()
    said = capsys.readouterr()
    return ended.value.code, " ".join(f"{said.out} {said.err}".split())


@pytest.mark.usefixtures("server")
def test_deploying_again_changes_nothing_but_what_is_wanted_otherwise(wanted: Wanted) -> None:
    deploy(list_deployments(wanted), make_pool(wanted.site))
    first = _dump()
    night = first["nightly"]
    (schedule, active, slug, _) = night["schedules"][0]
    assert (schedule.cron, schedule.timezone, active, slug) == (
        *("0 2 * * *", "Asia/Tokyo", True, "night"),
    )
    assert night["parameters"] == {"profile": "ci", "site": "local"} and night["limit"] == 1
    assert night["job_variables"]["env"]["DEADHEAT_STATE"] == str(wanted.root)
    assert all(each["enforce_parameter_schema"] and each["description"] for each in first.values())
    deploy(list_deployments(wanted), make_pool(wanted.site))
    assert _dump() == first
    assert not has_worker(TAG) and not has_worker("a pool that is not there yet")


@pytest.mark.usefixtures("server")
def test_orphans_go_strangers_stay_and_what_was_paused_stays_paused(wanted: Wanted) -> None:
    pool = make_pool(wanted.site)
    deploy(list_deployments(wanted), pool)
    orphan = stranger.to_deployment("orphan", tags=[TAG], work_pool_name=pool.name)
    other = stranger.to_deployment("other", work_pool_name=pool.name)
    for each in (orphan, other):
        each.apply()
    night = _read()["nightly"]
    with get_client(sync_client=True) as client:
        client.update_deployment_schedule(night.id, night.schedules[0].id, active=False)

    assert deploy(list_deployments(wanted), pool).removed == ("orphan",)

    found = _read()
    assert "orphan" not in found and found["other"].name == "other"
    assert [each.active for each in found["nightly"].schedules] == [False]


@pytest.mark.usefixtures("server")
def test_all_are_deployed_or_none_is_touched(wanted: Wanted) -> None:
    pool = make_pool(wanted.site)
    deploy(list_deployments(wanted), pool)
    before = _dump()
    changed = Wanted(
        site=wanted.site, profile="laptop", cron="5 5 * * *", timezone="UTC", root=wanted.root
    )
    new = stranger.to_deployment("new", tags=[TAG], work_pool_name=pool.name)
    bad = stranger.to_deployment(
        "bad", tags=[TAG], work_pool_name=pool.name, parameters={"number": "three"}
    )
    with pytest.raises(UserError, match=r"refused 'stranger/bad': .*; nothing was changed$"):
        deploy([*list_deployments(changed), new, bad], pool)
    assert _dump() == before


@pytest.mark.usefixtures("server")
def test_a_person_goes_before_the_night(wanted: Wanted) -> None:
    pool = make_pool(wanted.site)
    deploy(list_deployments(wanted), pool)
    question = {"question": {"workload": "noop", "use_case": "op"}}
    runs = [
        run_deployment("nightly/nightly", timeout=0),
        run_deployment("compare/compare", parameters=question, timeout=0),
    ]
    with get_client(sync_client=True) as client:
        queues = client.read_work_queues(work_pool_name=pool.name)
        asked = client.request(
            "POST",
            "/work_pools/{name}/get_scheduled_flow_runs",
            path_params={"name": pool.name},
            json={"limit": 1},
        )
        (first,) = asked.json()
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


DAILY = partial(list_automations, patience=timedelta(hours=26))


@pytest.mark.usefixtures("server", "alerts")
def test_automations_are_declared_once_and_leave_no_orphans(
    wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, pool = list_deployments(wanted), make_pool(wanted.site)
    assert deploy(listed, pool, DAILY).told
    trigger = EventTrigger(expect={"nothing"}, posture=Posture.Reactive)
    with get_client(sync_client=True) as client:
        for name, tags in (("orphan", [TAG]), ("other", [])):
            made = AutomationCore(name=name, tags=tags, trigger=trigger, actions=[DoNothing()])
            client.create_automation(made)
        client.pause_automation(_read_automations()["deadheat: zombie runs"].id)
    first = _dump_automations()
    assert deploy(listed, pool, DAILY).removed == ("orphan",)
    first.pop("orphan")
    assert _dump_automations() == first and len(first) == 5
    assert not first["deadheat: zombie runs"]["enabled"]
    (missing,) = (each for name, each in first.items() if "missing" in name)
    assert missing["trigger"]["within"] == timedelta(hours=26)
    monkeypatch.delenv("DEADHEAT_WEBHOOK_URL")
    done = deploy(listed, pool, DAILY)
    assert done.removed == ("deadheat: failed nights", "deadheat: missing nights")
    assert not done.told
    with pytest.raises(ValueError, match="Unable to find block document"):
        Webhook.load("deadheat-alerts")


@pytest.mark.usefixtures("server", "alerts")
def test_a_refused_automation_leaves_all_as_it_was(
    wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, pool = list_deployments(wanted), make_pool(wanted.site)
    deploy(listed, pool, DAILY)
    before = _dump(), _dump_automations(), Webhook.load("deadheat-alerts")
    changed = dataclasses.replace(wanted, profile="laptop")

    def list_bad(targets: Targets) -> list[AutomationCore]:
        assert targets.webhook is not None
        call = CallWebhook(block_document_id=targets.webhook, payload="{{ broken")
        found = list_automations(targets, patience=timedelta(hours=5))
        return [*found, found[0].model_copy(update={"name": "bad", "actions": [call]})]

    monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", "http://127.0.0.1:9/another")
    with pytest.raises(UserError, match=r"refused 'automations': .*; nothing was changed$"):
        deploy(list_deployments(changed), pool, list_bad)
    assert (_dump(), _dump_automations(), Webhook.load("deadheat-alerts")) == before


@pytest.mark.parametrize(
    ("cron", "hours"), [("0 2 * * *", 26), ("0 2 * * 0", 170), ("0 */6 * * *", 8)]
)
def test_a_night_is_missing_two_hours_after_it_ought_to_have_ended(cron: str, hours: int) -> None:
    assert find_patience(cron, "Asia/Tokyo") == timedelta(hours=hours)


def test_a_run_may_miss_some_heartbeats_before_it_is_taken_for_dead() -> None:
    assert timedelta(seconds=3 * HEARTBEAT_S) < SILENCE


@pytest.fixture
def watched(
    server: dict[str, str], wanted: Wanted, alerts: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Automations that lose patience after ten seconds; what they post."""
    short = timedelta(seconds=10)
    rules = partial(list_automations, patience=short, silence=short)
    deploy(list_deployments(wanted), make_pool(wanted.site), rules)
    with get_client(sync_client=True) as client:
        for each in _read_automations().values():
            client.resume_automation(each.id)
    return alerts


def test_a_night_that_fails_or_is_missing_is_told_and_nothing_else_is(
    watched: list[dict[str, Any]],
) -> None:
    question = {"question": {"workload": "noop", "use_case": "op"}}
    night = run_deployment("nightly/nightly", timeout=0)
    asked = run_deployment("compare/compare", parameters=question, timeout=0)
    with get_client(sync_client=True) as client:
        for run in (asked, night):
            failed = Failed(message='<!channel> & "co" {{ 1 }}')
            client.set_flow_run_state(run.id, failed, force=True)
    _wait(lambda: len(watched) >= 2)
    failed, missing = sorted(each["text"] for each in watched[:2])[::-1]
    assert failed == (
        f'The night {night.name} ended as Failed: &lt;!channel&gt; &amp; "co" {{{{ 1 }}}}'
    )
    assert missing == "No night has ended well for 10 seconds"


def test_a_run_that_is_heard_of_no_more_has_crashed(
    watched: list[dict[str, Any]], server: dict[str, str]
) -> None:
    """A process that is killed; another run is heard of all the time."""
    alive = run_deployment("nightly/nightly", timeout=0).id
    dead = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "sleeping_flow.py")],
        env={**os.environ, **server},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert dead.stdout is not None
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(alive, Running(), force=True)
        killed = UUID(dead.stdout.readline().strip())
        _wait(lambda: _has_event(killed, "prefect.flow-run.heartbeat"))
        dead.kill()
        dead.communicate()

        def is_over() -> bool:
            _say_alive(alive)
            return client.read_flow_run(killed).state_type is StateType.CRASHED

        _wait(is_over, every_s=2)
        found = client.read_flow_run(killed).state
        assert found is not None and found.message is not None
        assert found.message.startswith("nothing was heard of it for 10 seconds")
        assert client.read_flow_run(alive).state_type is StateType.RUNNING
        client.set_flow_run_state(alive, Completed(), force=True)


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
def test_pausing_holds_back_all_that_would_begin_and_says_what_goes_on(
    server: dict[str, str], wanted: Wanted, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = make_pool(wanted.site)
    deploy(list_deployments(wanted), pool, DAILY)
    state = ("--state", server["DEADHEAT_STATE"])
    watch = _read()["watch-releases"]
    runs = [run_deployment("nightly/nightly", timeout=0)]
    with get_client(sync_client=True) as client:
        client.update_deployment_schedule(watch.id, watch.schedules[0].id, active=False)
        client.set_flow_run_state(runs[0].id, Running(), force=True)
        question = {"question": {"workload": "noop", "use_case": "op"}}
        runs.append(run_deployment("compare/compare", parameters=question, timeout=0))
        for _ in range(2):  # again, it changes nothing
            code, said = _call(capsys, "pause", *state)
            assert code == 0 and f"under way, goes on: {runs[0].name} (running)" in said, said
            assert f"waits: {runs[1].name} (scheduled)" in said
            assert _stand(client, pool.name) == {True}
        deploy(list_deployments(wanted), pool, DAILY)
        assert _stand(client, pool.name) == {True}
        code, said = _call(capsys, "resume", *state)
        assert code == 0 and f"begins: {runs[1].name}" in said
        assert _stand(client, pool.name) == {False}
        for run in runs:
            client.delete_flow_run(run.id)
    found = _read()
    assert [each.active for each in found["watch-releases"].schedules] == [False]
    assert [each.active for each in found["backfill"].schedules] == []


@pytest.mark.usefixtures("server")
def test_a_backfill_plans_the_versions_that_can_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    monkeypatch.setattr("flows.backfill.run_campaign", lambda name, root: {"failures": []})
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
    assert [each.split("-")[-1] for each in names] == ["1.4", "1.2", "1.1", "1.1"]
    with get_client(sync_client=True) as client:
        (told,) = client.request("POST", "/artifacts/filter", json={}).json()
    rows = {row["version"]: row for row in json.loads(told["data"])}
    assert rows["1.3"]["measured"] == "no" and "nowhere-to-be-found" in rows["1.3"]["why not"]


@pytest.mark.usefixtures("server")
def test_what_there_is_nothing_of_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    assert confirm(return_state=True).message == "no suspicion is open"
    unknown = confirm(suspicions=[7], return_state=True)
    assert unknown.is_failed() and str(unknown.message).startswith("no suspicion 7; ")
    backwards = confirm(starts=[8, 5], return_state=True)
    assert backwards.is_failed() and "that grow, got 8, 5" in str(backwards.message)
    nothing = publish(return_state=True)
    assert nothing.is_failed() and "none has left a result" in str(nothing.message)


@pytest.mark.usefixtures("server")
def test_pausing_where_nothing_was_deployed_is_told() -> None:
    with pytest.raises(UserError, match="'nowhere' to hold back, but this server has none"):
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


def _say_alive(run: UUID) -> None:
    """As Prefect's engine does."""
    emit_event(
        "prefect.flow-run.heartbeat",
        resource={"prefect.resource.id": f"prefect.flow-run.{run}"},
        related=[{"prefect.resource.id": f"prefect.tag.{TAG}", "prefect.resource.role": "tag"}],
    )


def _wait(condition: Callable[[], bool], every_s: float = 0.5) -> None:
    until = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < until, "waited in vain"
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
    code, said = _call(capsys, "deploy", *arguments, "--state", server["DEADHEAT_STATE"])
    assert code == 2 and words in said, said
    assert "Traceback" not in said and _dump() == before


@pytest.mark.parametrize("cron", ["x", "* * * * * *", "61 * * * *", "0 2 * *", "$(id)"])
def test_what_cron_does_not_know_is_refused(cron: str) -> None:
    with pytest.raises(UserError, match="wanted five fields of cron"):
        read_schedule(cron, "UTC", "night")


@pytest.mark.parametrize(
    ("status", "version", "words"),
    [(401, "3.8.8", "set PREFECT_API_AUTH_STRING"), (200, "2.0", "own version")],
)
def test_a_server_that_will_not_have_us_is_told(
    status: int, version: str, words: str, monkeypatch: pytest.MonkeyPatch, wanted: Wanted
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
            deploy(list_deployments(wanted), make_pool(wanted.site))
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

"""Deployments on a real Prefect server: applying is idempotent, and a refusal names its object."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from deployed_flows import call_deadheat, dump_deployments, list_few, read_deployments, stranger
from prefect.client.orchestration import get_client
from prefect.deployments import run_deployment
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL, temporary_settings

from benchcore.errors import UserError
from benchcore.protocol import EnvironmentRecord
from benchcore.state import State, open_state
from flows.server.deployments import DeployOptions, list_deployments, make_pool
from tasks.server.apply import apply, read_schedule
from tasks.server.available_versions import update_forms
from tasks.server.prefect_server import TAG, has_worker


@pytest.mark.usefixtures("server")
def test_deploying_again_changes_only_what_differs(
    wanted: DeployOptions,
) -> None:
    apply(list_deployments(wanted), make_pool(wanted.site))
    first = dump_deployments()
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
    assert dump_deployments() == first
    assert not has_worker(TAG) and not has_worker("a pool that is not there yet")


@pytest.mark.usefixtures("server")
def test_orphans_are_deleted_foreign_deployments_stay_and_paused_ones_stay_paused(
    wanted: DeployOptions,
) -> None:
    pool = make_pool(wanted.site)
    apply(list_few(wanted), pool)
    orphan = stranger.to_deployment("orphan", tags=[TAG], work_pool_name=pool.name)
    other = stranger.to_deployment("other", work_pool_name=pool.name)
    for each in (orphan, other):
        each.apply()
    night = read_deployments()["nightly"]
    with get_client(sync_client=True) as client:
        client.update_deployment_schedule(night.id, night.schedules[0].id, active=False)

    assert apply(list_few(wanted), pool).removed == ("orphan",)

    found = read_deployments()
    assert "orphan" not in found and found["other"].name == "other"
    assert [each.active for each in found["nightly"].schedules] == [False]


@pytest.mark.usefixtures("server")
def test_a_refused_deployment_is_named_and_deploying_again_completes_it(
    wanted: DeployOptions,
) -> None:
    pool = make_pool(wanted.site)
    apply(list_few(wanted), pool)
    changed = list_few(dataclasses.replace(wanted, profile="laptop"))
    orphan, new, bad = (
        stranger.to_deployment(name, tags=[TAG], work_pool_name=pool.name, parameters=given)
        for name, given in (("orphan", {}), ("new", {}), ("bad", {"number": "three"}))
    )
    orphan.apply()
    with pytest.raises(UserError, match=r"refused 'stranger/bad': .*, then deploy again$"):
        apply([bad, *changed, new], pool)
    found = read_deployments()
    assert "bad" not in found and {"orphan", "new"} < found.keys()  # nothing was removed
    assert found["nightly"].parameters["profile"] == "laptop"
    bad.parameters = {"number": 3}
    assert apply([bad, *changed, new], pool).removed == ("orphan",)
    assert read_deployments()["bad"].parameters == {"number": 3}
    assert apply(changed, pool).removed == ("bad", "new")


@pytest.mark.usefixtures("server")
def test_forms_list_the_environments_of_their_state_folder(
    wanted: DeployOptions, tmp_path: Path
) -> None:
    apply(list_few(wanted), make_pool(wanted.site))
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
    apply(list_few(wanted), make_pool(wanted.site))
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
    sides = (read_deployments()["compare"].parameter_openapi_schema or {})["definitions"]["Side"]
    return {way["title"]: way.get("enum") for way in sides["properties"]["version"]["anyOf"]}


def _request_run(version: str) -> None:
    side = {"framework": "jax", "version": version}
    question = {"workload": "mlp", "use_case": "infer", "a": side}
    requested = run_deployment("compare/compare", parameters={"question": question}, timeout=0)
    with get_client(sync_client=True) as client:
        client.delete_flow_run(requested.id)


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
    before = dump_deployments()
    if url is not None:
        monkeypatch.setenv("PREFECT_API_URL", url)
    code, printed = call_deadheat(capsys, "deploy", *arguments, "--state", server["DEADHEAT_STATE"])
    assert code == 2 and words in printed, printed
    assert "Traceback" not in printed and dump_deployments() == before


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
            apply(list_few(wanted), make_pool(wanted.site))
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

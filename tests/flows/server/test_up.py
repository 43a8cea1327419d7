"""`deadheat up` on this machine, its Slurm too: a tick of cron, a release and a form sent from
Chromium each come to their end, and nothing is left after `deadheat down`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from local_slurm import LocalSlurm, need_slurm
from package_index import serve_index
from playwright.sync_api import sync_playwright
from prefect_ui import fill_in, photograph, read_answer, sign_in, submit, write_version
from webhooks import serve_webhook

from benchcore.protocol import EnvironmentRecord
from benchcore.state import State
from flows.server import services
from flows.server.postgres import Postgres, find_postgres
from flows.server.services import Service

DEADHEAT = str(Path(sys.executable).parent / "deadheat")
ZONE = "Asia/Tokyo"
SERVICES = {"database", "server", "dashboard"}
CHROMIUM = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"


@dataclass
class Machine:
    """What `deadheat up` runs."""

    state: Path
    ports: tuple[int, int, int]
    environment: dict[str, str]
    options: tuple[str, ...] = ()

    @property
    def site(self) -> str:
        """Where its campaigns run."""
        return "slurm-local" if "--slurm-local" in self.options else "local"

    def call(self, what: str, *more: str) -> subprocess.CompletedProcess[str]:
        """A command of ours, on this machine's state folder."""
        kept = {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"}
        return subprocess.run(
            [DEADHEAT, what, "--state", str(self.state), *more],
            env={**kept, **self.environment, "PREFECT_WORKER_QUERY_SECONDS": "1"},
            capture_output=True,
            text=True,
            timeout=240,
        )

    def up(self, cron: str) -> dict[str, Any]:
        """Bring it up."""
        options = ("--port", "--dashboard-port", "--database-port")
        ports = [text for pair in zip(options, map(str, self.ports), strict=True) for text in pair]
        night = ("--profile", "smoke", "--cron", cron, "--timezone", ZONE)
        done = self.call("up", *night, "--json", *ports, *self.options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def auth(self) -> str:
        """What the server requires of a client."""
        return (self.state / "up" / "api.secret").read_text()

    def send(self, path: str, body: object = None, method: str | None = None) -> Any:
        """The answer of the server's API."""
        basic = b64encode(self.auth.encode()).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[0]}/api{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Basic {basic}"},
            method=method,
        )
        until = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    return json.loads(response.read() or "null")
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > until:  # its SQLite is busy: ask again
                    raise
                time.sleep(1)

    def find(self, name: str) -> dict[str, Any]:
        """A deployment, by its name and that of its flow."""
        return self.send(f"/deployments/name/{name}/{name}")


@pytest.fixture(scope="module")
def alerts() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook's address, and what was posted to it."""
    with serve_webhook() as webhook:
        yield webhook


@pytest.fixture(scope="module")
def machine(
    tmp_path_factory: pytest.TempPathFactory,
    session_state: State,
    alerts: tuple[str, list[dict[str, Any]]],
) -> Iterator[Machine]:
    """Its campaigns run in Slurm where that is installed, its environments are the session's, and
    its watch looks only on request. Its server keeps its runs in PostgreSQL."""
    installed = find_postgres()
    if isinstance(installed, str):
        if os.environ.get("CI"):
            pytest.fail(installed)
        pytest.skip(installed)
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for each in (one, two, three):
            each.bind(("127.0.0.1", 0))
        ports = (one.getsockname()[1], two.getsockname()[1], three.getsockname()[1])
    state = tmp_path_factory.mktemp("up")
    (state / "environments").symlink_to(session_state.environments)
    options = ("--database", "postgresql", *(["--slurm-local"] if shutil.which("sbatch") else ()))
    found = Machine(state, ports, {"DEADHEAT_WEBHOOK_URL": alerts[0]}, options)
    found.up("0 0 1 1 *")
    watch = found.find("watch-releases")
    (hourly,) = watch["schedules"]
    path = f"/deployments/{watch['id']}/schedules/{hourly['id']}"
    found.send(path, {"active": False}, "PATCH")
    yield found
    found.call("down")


@pytest.fixture(scope="module")
def tick(machine: Machine) -> datetime:
    """When the night is going to begin: the minute after next, as the server is configured."""
    for _ in range(3):
        moment = datetime.now(ZoneInfo(ZONE)).replace(second=0, microsecond=0)
        moment += timedelta(minutes=2)
        first = json.loads(machine.call("status", "--json").stdout)
        assert machine.up(f"{moment.minute} {moment.hour} * * *") == first  # nothing new started
        until = time.monotonic() + 30
        while time.monotonic() < until:
            expected = [run["expected_start_time"] for run in _list_runs(machine, "nightly")]
            if moment in map(datetime.fromisoformat, expected):
                return moment
            time.sleep(0.5)
    raise AssertionError("the server never had a run for the night in time")


def test_up_again_starts_nothing_twice_and_a_taken_port_is_reported(
    machine: Machine, tick: datetime, tmp_path: Path
) -> None:
    first = json.loads(machine.call("status", "--json").stdout)
    workers = {"worker", "slurm-worker"} if "--slurm-local" in machine.options else {"worker"}
    assert {each["service"] for each in first["services"]} == {*SERVICES, *workers}
    other = Machine(tmp_path, machine.ports, {})
    refused = other.call("up", "--port", str(machine.ports[0]), "--dashboard-port", "1025")
    assert refused.returncode == 2 and "another port with --port" in refused.stderr
    assert "Traceback" not in refused.stderr
    nothing = other.call("status")
    assert nothing.returncode == 2 and "but none was started" in nothing.stderr
    other_port = machine.call("up", "--port", "1026")
    assert other_port.returncode == 2 and "`deadheat down` first" in other_port.stderr
    running = f"services with --port {machine.ports[0]}, "
    assert "wanted --port 1026, " in other_port.stderr and running in other_port.stderr


def test_a_worker_that_is_killed_comes_back(machine: Machine) -> None:
    """The tests below need it."""
    worker = Service(name="worker", folder=machine.state / "up")
    supervisor, killed = services.find(worker)[:2]
    os.kill(killed, signal.SIGKILL)
    _wait(lambda: len(services.find(worker)) > 1 and services.find(worker)[1] != killed)
    assert services.find(worker)[0] == supervisor
    assert "worker ended with exit code -9" in worker.log.read_text()
    listed = json.loads(machine.call("status", "--json").stdout)["services"]
    assert {each["status"] for each in listed} == {"runs"}


def test_the_server_requires_its_secret(machine: Machine, tmp_path: Path) -> None:
    api = f"http://127.0.0.1:{machine.ports[0]}/api"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{api}/admin/version", timeout=30)
    assert refused.value.code == 401
    refused.value.close()
    secret = machine.state / "up" / "api.secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    stranger = Machine(tmp_path, machine.ports, {"PREFECT_API_AUTH_STRING": "deadheat:guessed"})
    refused = subprocess.run(
        [DEADHEAT, "deploy", "--state", str(tmp_path)],
        env={**os.environ, **stranger.environment, "PREFECT_API_URL": api},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert refused.returncode == 2 and "set PREFECT_API_AUTH_STRING" in refused.stderr, (
        refused.stderr
    )


@pytest.mark.browser
@pytest.mark.provisions
def test_a_form_sent_from_chromium_is_refused_beside_its_field_or_answered(
    machine: Machine, framework_environment: Callable[[str], EnvironmentRecord]
) -> None:
    """The comparison runs on the Slurm pool: JAX against torch where a step is nearly nothing but
    its dispatch, so that one of them is faster by far."""
    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("CI"):
            pytest.fail("wanted chromium on PATH, found none; install it")
        pytest.skip("chromium is not installed")
    need_slurm()
    framework_environment("jax@newest")
    published = framework_environment("torch@newest").packages["torch"].partition("+")[0]
    ui = f"http://127.0.0.1:{machine.ports[0]}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM.split())
        page = browser.new_page(viewport={"width": 1280, "height": 2200})
        sign_in(page, ui, machine.auth)
        page.goto(f"{ui}/deployments/deployment/{machine.find('compare')['id']}/run")
        fill_in(page)
        version = write_version(page, "9.9; rm -rf /")
        page.get_by_role("button", name="Submit").click()
        version.get_by_text("is not valid under any of the").wait_for(timeout=60_000)
        photograph(page, "refused", height=760, at=version)
        assert _list_runs(machine, "compare") == []
        write_version(page, published)
        assert submit(page) == 201
        page.goto("about:blank")  # the UI draws all the time, on the CPUs that are measured
        run = _wait_for_run(machine, "compare")
        assert run["state"]["type"] == "COMPLETED", run["state"]
        verdict = read_answer(page, f"{ui}/runs/flow-run/{run['id']}")
        browser.close()
    assert run["state"]["message"] == verdict
    found = re.fullmatch(r"(\S+) is ([\d.]+)x \(([\d.]+) to ([\d.]+)\) as fast as (\S+)", verdict)
    if found is not None:
        middle, low, high = map(float, found.group(2, 3, 4))
        assert 1 < low <= middle <= high
    assert run["work_queue_name"] == "people" and run["name"] == "compare-mlp"
    (document,) = _read_documents(machine, "compare-mlp-*")
    names = {each["name"] for each in document["contenders"]}
    assert all(name in verdict for name in names)
    artifacts = {each["key"]: each for each in machine.send("/artifacts/filter", {})}
    logs = artifacts["logs-compare-mlp"]
    assert logs["description"] == f"mlp infer_b1: logs of {', '.join(sorted(names))}"
    (bar,) = (
        each for key, each in artifacts.items() if key and key.startswith("progress-compare-mlp")
    )
    assert (bar["data"], bar["description"]) == (100, "1 of 1 duels measured")
    assert bar["flow_run_id"] == run["id"] != logs["flow_run_id"]
    assert document["allocation"]["site"] == "slurm-local"
    assert {each["status"] for each in document["contenders"]} == {"ok"}


def test_a_new_release_is_run_once_and_ends_in_an_alert(
    machine: Machine,
    alerts: tuple[str, list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    """The environment of this one lacks its bundled packages: an alert, too."""
    watch, release = machine.find("watch-releases"), machine.find("release")

    def look(count: int) -> str:
        night = {"parameters": {"site": "local", "profile": "ci"}}
        now = {**night, "state": {"type": "SCHEDULED"}}
        machine.send(f"/deployments/{watch['id']}/create_flow_run", now)
        return _wait_for_run(machine, "watch-releases", count)["state"]["message"]

    with serve_index() as index:
        for each in (watch, release):
            job = each["job_variables"]
            job = {**job, "env": {**job["env"], **index.settings(tmp_path)}}
            machine.send(f"/deployments/{each['id']}", {"job_variables": job}, "PATCH")
        assert look(1) == "nothing new"
        index.publish("jax", "1.2")
        assert look(2) == "jax 1.2"
        run = _wait_for_run(machine, "release")
        assert run["state"]["type"] == "FAILED" and run["name"] == "jax-1.2"
        assert run["idempotency_key"] == "deadheat-release-jax-1.2-0"
        assert look(3) == "nothing new"
    assert len(_list_runs(machine, "release")) == 1
    (alert,) = alerts[1]
    assert alert["text"].startswith("jax 1.2 failed: ") and "environment" in alert["text"], alert
    (seen,) = json.loads((machine.state / "releases.json").read_text())["seen"]
    assert (seen["version"], seen["status"]) == ("1.2", "failed")


def test_a_tick_of_cron_runs_the_night(machine: Machine, tick: datetime) -> None:
    run = _wait_for_run(machine, "nightly")
    assert run["state"]["type"] == "COMPLETED", run["state"]
    assert run["auto_scheduled"] and run["idempotency_key"].startswith("scheduled ")
    assert datetime.fromisoformat(run["expected_start_time"]) == tick
    assert run["work_queue_name"] == "night" and run["name"] == f"smoke-on-{machine.site}"
    (document,) = _read_documents(machine, "nightly-smoke-*")
    assert document["allocation"]["site"] == machine.site
    assert bool(document["allocation"]["slurm_job_id"]) == (machine.site == "slurm-local")


def test_down_leaves_no_process_and_no_running_flow_run(machine: Machine) -> None:
    first = json.loads(machine.call("status", "--json").stdout)
    pids = [each["pid"] for each in first["services"]]
    night = {"parameters": {"profile": "ci"}}
    run = machine.send(f"/deployments/{machine.find('nightly')['id']}/create_flow_run", night)["id"]
    _wait(lambda: machine.send(f"/flow_runs/{run}")["state"]["type"] not in ("SCHEDULED",))

    assert machine.call("down").returncode == 0

    mark = f"DEADHEAT_SERVICE={machine.state / 'up'}".encode()
    left = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes():
                left.append((entry / "cmdline").read_bytes())
        except OSError:
            continue
    assert left == [] and not any(map(_is_alive, pids))
    assert LocalSlurm(machine.state / "slurm").find_daemons() == {}
    assert "nothing is running" in machine.call("down").stdout
    found = find_postgres()
    assert isinstance(found, Postgres)
    exported = subprocess.run(  # its files alone, as nothing serves them any more
        [*found.prefix, str(found.binaries / "postgres"), "--single", "-D", "postgres", "prefect"],
        input=f"SELECT state_type FROM flow_run WHERE id = '{run}'\n",
        cwd=machine.state,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (
        'state_type = "CRASHED"' in exported.stdout or 'state_type = "CANCELLED"' in exported.stdout
    )


def _is_alive(pid: int) -> bool:
    """A zombie, which its parent did not reap, has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _read_documents(machine: Machine, campaign: str) -> list[dict[str, Any]]:
    found = sorted((machine.state / "spool").glob(f"{campaign}/*.json"))
    return [json.loads(path.read_text()) for path in found]


def _list_runs(machine: Machine, flow: str) -> list[dict[str, Any]]:
    return machine.send("/flow_runs/filter", {"flows": {"name": {"any_": [flow]}}})


def _wait_for_run(machine: Machine, flow: str, count: int = 1) -> dict[str, Any]:
    """The last of that many runs of a flow, once they have ended."""
    found: list[dict[str, Any]] = []

    def ended() -> bool:
        found[:] = [run for run in _list_runs(machine, flow) if run["start_time"]]
        states = [run["state"]["type"] for run in found]
        return len(states) >= count and not set(states) & {"SCHEDULED", "PENDING", "RUNNING"}

    _wait(ended)
    return max(found, key=lambda run: run["start_time"])


def _wait(condition: Any, timeout_s: float = 400.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "timed out"
        time.sleep(0.5)

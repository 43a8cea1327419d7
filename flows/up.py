"""The commands `deadheat up`, `down` and `status`: everything that one machine needs, as one."""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer

import deployments
from benchcore.errors import UserError
from benchcore.protocol import write_json
from benchcore.sites import find_pool, load_site
from benchcore.state import State, open_state
from flows import services
from flows.deploy import CRON, CronOption, TimezoneOption, draft_deployments
from flows.options import STATE, JsonOption, ProfileOption, StateOption
from flows.orchestrator import settle_prefect, use_server
from flows.printing import OUT, print_json, print_rows
from flows.services import Service
from flows.up_record import POOL, SLURM_SITE, Up, read_record, record_path

_SLURM_LOCAL = Path(deployments.__file__).parent / "slurm-local" / "slurm_local.py"
_START_S = 120.0

PortOption = Annotated[
    int, typer.Option("--port", min=1024, max=65535, help="Of the Prefect server.")
]
DashboardPortOption = Annotated[
    int, typer.Option("--dashboard-port", min=1024, max=65535, help="Of the dashboard.")
]
SlurmLocalOption = Annotated[
    bool, typer.Option("--slurm-local", help="A Slurm on this machine, too: campaigns run there.")
]


def up(
    profile: ProfileOption = "laptop",
    cron: CronOption = CRON,
    timezone: TimezoneOption = "UTC",
    port: PortOption = 4200,
    dashboard_port: DashboardPortOption = 4201,
    slurm_local: SlurmLocalOption = False,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Start Prefect's server, a worker, the deployments and the dashboard. Again, it resumes."""
    opened = open_state(state)
    asked = Up(port=port, dashboard_port=dashboard_port, slurm_local=slurm_local)
    _check_same(asked, opened)
    settle_prefect(opened)
    use_server(asked.api)
    wanted = draft_deployments(opened, asked.site, profile=profile, cron=cron, timezone=timezone)
    server, dashboard, *workers = _list_services(asked, opened)
    for service, taken, option in (
        (server, port, "--port"),
        (dashboard, dashboard_port, "--dashboard-port"),
    ):
        if not services.find(service):
            services.check_port(taken, option)
    if slurm_local:
        _call_slurm("start", opened)
    record_path(opened).parent.mkdir(exist_ok=True)
    write_json(record_path(opened), dataclasses.asdict(asked))
    opened.site.mkdir(parents=True, exist_ok=True)
    for service, address in ((server, f"{asked.api}/health"), (dashboard, asked.dashboard)):
        if not services.find(service):
            services.start(service)
        services.wait_until(service, lambda address=address: _answers(address), _START_S)

    from tasks import deployments as server_side

    server_side.deploy(**wanted)
    for worker in workers:
        pool = worker.command[-1]
        if not services.find(worker):
            server_side.end_orphans(pool)
            services.start(worker)
        services.wait_until(worker, lambda pool=pool: server_side.has_worker(pool), _START_S)
    _tell(asked, opened, as_json)


def down(state: StateOption = STATE) -> None:
    """End all that `deadheat up` started. Runs that are under way end as crashed."""
    opened = open_state(state)
    recorded = read_record(opened)
    if recorded is None:
        OUT.print("down already", highlight=False)
        return
    server, dashboard, *workers = _list_services(recorded, opened)
    for worker in workers:
        services.stop(worker)
    if services.find(server) and _answers(f"{recorded.api}/health"):
        settle_prefect(opened)
        use_server(recorded.api)
        from tasks.deployments import end_orphans

        for worker in workers:
            end_orphans(worker.command[-1])
    for service in (dashboard, server):
        services.stop(service)
    if recorded.slurm_local:
        _call_slurm("stop", opened)
    record_path(opened).unlink()
    OUT.print("stopped", highlight=False)


def status(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Show what runs of `deadheat up`. Exits with 1 if something does not."""
    opened = open_state(state)
    recorded = read_record(opened)
    if recorded is None:
        raise UserError(
            f"wanted what `deadheat up` started in {str(opened.root)!r}, but nothing was; start it"
        )
    if not _tell(recorded, opened, as_json):
        raise typer.Exit(1)


def _list_services(asked: Up, state: State) -> list[Service]:
    """The server, the dashboard, and the workers, whose command ends with their pool."""
    prefect = (sys.executable, "-m", "prefect")
    environment = {
        "PREFECT_API_URL": asked.api,
        "DEADHEAT_STATE": str(state.root),
        "DEADHEAT_DASHBOARD_URL": asked.dashboard,
    }
    shared: dict[str, Any] = {"folder": state.root / "up", "environment": environment}
    serve = ("server", "start", "--host", "127.0.0.1", "--port", str(asked.port))
    web = ("http.server", "--bind", "127.0.0.1", "--directory", str(state.site))
    name = f"deadheat-{socket.gethostname()}"
    work = (*prefect, "worker", "start", "--name", name, "--type")
    listed = [
        Service(name="server", command=(*prefect, *serve), **shared),
        Service(
            name="dashboard",
            command=(sys.executable, "-m", *web, str(asked.dashboard_port)),
            **shared,
        ),
        Service(name="worker", command=(*work, "process", "--pool", POOL), **shared),
    ]
    if asked.slurm_local:
        pool = f"{SLURM_SITE}-{find_pool(load_site(SLURM_SITE), None)[0]}"
        environment["SLURM_CONF"] = str(state.root / "slurm" / "etc" / "slurm.conf")
        listed.append(
            Service(name="slurm-worker", command=(*work, "slurm", "--pool", pool), **shared)
        )
    return listed


def _check_same(asked: Up, state: State) -> None:
    recorded = read_record(state)
    if recorded in (None, asked):
        return
    if any(services.find(each) for each in _list_services(recorded, state)):
        raise UserError(
            f"wanted {asked}, but {recorded} runs in {str(state.root)!r}; `deadheat down` first, "
            "or name another state folder with --state"
        )


def _call_slurm(what: str, state: State) -> None:
    folder = str(state.root / "slurm")
    done = subprocess.run(
        [sys.executable, str(_SLURM_LOCAL), what, "--folder", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UserError(" ".join(done.stderr.split())[-600:])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status == 200
    except OSError:
        return False


def _is_paused(asked: Up) -> bool | None:
    """Whether `deadheat pause` holds back what would begin; None = the server does not say."""
    try:
        with urllib.request.urlopen(f"{asked.api}/work_pools/{POOL}", timeout=10) as response:
            return bool(json.loads(response.read())["is_paused"])
    except (OSError, ValueError, KeyError):
        return None


def _tell(asked: Up, state: State, as_json: bool) -> bool:
    """Print what runs; whether all of it does."""
    where = {"server": asked.api, "dashboard": asked.dashboard}
    rows: list[dict[str, Any]] = []
    for service in _list_services(asked, state):
        found = services.find(service)
        address = where.get(service.name)
        answers = bool(found) and (
            address is None or _answers(f"{address}/health" if address == asked.api else address)
        )
        rows.append(
            {
                "service": service.name,
                "status": "runs" if answers else "does not answer" if found else "has ended",
                "pid": found[0] if found else None,
                "where": address or f"pool {service.command[-1]}",
            }
        )
    is_paused = _is_paused(asked)
    if as_json:
        print_json({**dataclasses.asdict(asked), "paused": is_paused, "services": rows})
    else:
        print_rows(rows, ("service", "status", "pid", "where"), title="deadheat up")
        if is_paused:
            OUT.print("Paused: nothing new begins until `deadheat resume`", highlight=False)
        OUT.print(
            f"Prefect: {asked.api.removesuffix('/api')}   Dashboard: {asked.dashboard}\n"
            "Others reach the server with: "
            f"export PREFECT_API_URL={asked.api}\n"
            "Its database is SQLite: fine for one machine, not for dozens of runs that begin at "
            "once.",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    return all(row["status"] == "runs" for row in rows)

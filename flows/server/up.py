"""The commands `deadheat up`, `down` and `status`: everything that one machine needs, as one."""

from __future__ import annotations

import dataclasses
import json
import shlex
import socket
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import deployments
from benchcore.errors import UserError
from benchcore.protocol import write_json
from benchcore.sites import find_pool, load_site
from benchcore.state import State, open_state
from flows.commands.options import STATE, JsonOption, ProfileOption, StateOption
from flows.orchestrator import settle_prefect, use_server
from flows.printing import OUT, print_json, print_rows
from flows.server import postgres, services
from flows.server.deploy import CRON, CronOption, TimezoneOption, draft_deployments
from flows.server.postgres import Postgres
from flows.server.services import Service
from flows.up_record import (
    POOL,
    SLURM_SITE,
    Up,
    read_record,
    read_secret,
    record_path,
    secret_path,
)

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


class Database(StrEnum):
    """Where Prefect's server keeps its runs."""

    AUTO = "auto"
    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


DatabaseOption = Annotated[
    Database,
    typer.Option("--database", help="Of the Prefect server; auto: PostgreSQL where it can run."),
]
DatabasePortOption = Annotated[
    int, typer.Option("--database-port", min=1024, max=65535, help="Of PostgreSQL, if it runs.")
]


def up(
    profile: ProfileOption = "laptop",
    cron: CronOption = CRON,
    timezone: TimezoneOption = "UTC",
    port: PortOption = 4200,
    dashboard_port: DashboardPortOption = 4201,
    slurm_local: SlurmLocalOption = False,
    database: DatabaseOption = Database.AUTO,
    database_port: DatabasePortOption = 4202,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Start Prefect's server, a worker, the deployments and the dashboard. Again, it resumes."""
    opened = open_state(state)
    chosen = _choose_database(database)
    own = chosen if isinstance(chosen, Postgres) else None
    asked = Up(
        port=port,
        dashboard_port=dashboard_port,
        slurm_local=slurm_local,
        database_port=database_port if own else None,
    )
    _check_same(asked, opened)
    settle_prefect(opened)
    use_server(asked.api, read_secret(opened, "api"))
    wanted = draft_deployments(opened, asked.site, profile=profile, cron=cron, timezone=timezone)
    listed = _list_services(asked, opened, own)
    for name, taken, option in (
        ("database", database_port, "--database-port"),
        ("server", port, "--port"),
        ("dashboard", dashboard_port, "--dashboard-port"),
    ):
        if name in listed and not services.find(listed[name]):
            services.check_port(taken, option)
    if slurm_local:
        _call_slurm("start", opened)
    if own:
        postgres.make_cluster(own, opened.root / "postgres", secret_path(opened, "database"))
    write_json(record_path(opened), dataclasses.asdict(asked))
    opened.site.mkdir(parents=True, exist_ok=True)
    ready: dict[str, Callable[[], bool]] = {
        "database": lambda: postgres.open_database(database_port, read_secret(opened, "database")),
        "server": lambda: _answers(f"{asked.api}/health"),
        "dashboard": lambda: _answers(asked.dashboard),
    }
    for name in [each for each in ready if each in listed]:
        _run(listed[name], ready[name])

    from tasks import deployments as server_side
    from tasks import offers

    server_side.deploy(**wanted)
    offers.offer_built(opened)
    for worker in _list_workers(listed):
        pool = worker.command[-1]
        if not services.find(worker):
            server_side.end_orphans(pool)
        _run(worker, lambda pool=pool: server_side.has_worker(pool))
    _tell(asked, opened, as_json)
    if isinstance(chosen, str) and not as_json:
        _say(f"Why SQLite: {chosen}")


def down(state: StateOption = STATE) -> None:
    """End all that `deadheat up` started. Runs that are under way end as crashed."""
    opened = open_state(state)
    recorded = read_record(opened)
    if recorded is None:
        OUT.print("down already", highlight=False)
        return
    listed = _list_services(recorded, opened)
    for worker in _list_workers(listed):
        services.stop(worker)
    if services.find(listed["server"]) and _answers(f"{recorded.api}/health"):
        settle_prefect(opened)
        use_server(recorded.api, read_secret(opened, "api"))
        from tasks.deployments import end_orphans

        for worker in _list_workers(listed):
            end_orphans(worker.command[-1])
    for service in reversed(listed.values()):
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


def _choose_database(database: Database) -> Postgres | str:
    """What Prefect's server keeps its runs in, or why it has to be SQLite. Raises UserError."""
    if database is Database.SQLITE:
        return "it was asked for"
    found = postgres.find_postgres()
    if database is Database.POSTGRESQL and isinstance(found, str):
        raise UserError(
            f"wanted a PostgreSQL, but {found}; mend that, or choose `--database sqlite`"
        )
    return found


def _list_services(asked: Up, state: State, own: Postgres | None = None) -> dict[str, Service]:
    """By their names, in the order in which they start; without `own` the database can't."""
    prefect = (sys.executable, "-m", "prefect")
    auth = read_secret(state, "api")
    environment = {
        "PREFECT_API_URL": asked.api,
        "PREFECT_API_AUTH_STRING": auth,
        "DEADHEAT_STATE": str(state.root),
        "DEADHEAT_DASHBOARD_URL": asked.dashboard,
    }
    folder = state.root / "up"
    shared: dict[str, Any] = {"folder": folder, "environment": environment}
    of_server = {**environment, "PREFECT_SERVER_API_AUTH_STRING": auth}
    listed: list[Service] = []
    if port := asked.database_port:
        url = postgres.make_url(port, read_secret(state, "database"))
        of_server["PREFECT_API_DATABASE_CONNECTION_URL"] = url
        command = own.command(state.root / "postgres", port) if own else ()
        listed.append(Service(name="database", folder=folder, command=command))
    serve = ("server", "start", "--host", "127.0.0.1", "--port", str(asked.port))
    web = ("http.server", "--bind", "127.0.0.1", "--directory", str(state.site))
    name = f"deadheat-{socket.gethostname()}"
    work = (*prefect, "worker", "start", "--name", name, "--type")
    listed += [
        Service(
            name="server",
            command=(*prefect, *serve),
            folder=folder,
            environment=of_server,
        ),
        Service(
            name="dashboard",
            command=(sys.executable, "-m", *web, str(asked.dashboard_port)),
            folder=folder,
        ),
        Service(name="worker", command=(*work, "process", "--pool", POOL), **shared),
    ]
    if asked.slurm_local:
        pool = f"{SLURM_SITE}-{find_pool(load_site(SLURM_SITE), None)[0]}"
        environment["SLURM_CONF"] = str(state.root / "slurm" / "etc" / "slurm.conf")
        listed.append(
            Service(name="slurm-worker", command=(*work, "slurm", "--pool", pool), **shared)
        )
    return {each.name: each for each in listed}


def _list_workers(listed: dict[str, Service]) -> list[Service]:
    """Those whose command ends with their pool."""
    return [each for name, each in listed.items() if name.endswith("worker")]


def _check_same(asked: Up, state: State) -> None:
    recorded = read_record(state)
    if recorded in (None, asked):
        return
    if any(map(services.find, _list_services(recorded, state).values())):
        raise UserError(
            f"wanted {asked}, but {recorded} runs in {str(state.root)!r}; `deadheat down` first, "
            "or name another state folder with --state"
        )


def _run(service: Service, ready: Callable[[], bool]) -> None:
    if not services.find(service):
        services.start(service)
    services.wait_until(service, ready, _START_S)


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


def _is_paused(asked: Up, auth: str) -> bool | None:
    """Whether `deadheat pause` holds back what would begin; None = the server does not say."""
    basic = {"Authorization": f"Basic {b64encode(auth.encode()).decode()}"}
    asking = urllib.request.Request(f"{asked.api}/work_pools/{POOL}", headers=basic)
    try:
        with urllib.request.urlopen(asking, timeout=10) as response:
            return bool(json.loads(response.read())["is_paused"])
    except (OSError, ValueError, KeyError):
        return None


def _tell(asked: Up, state: State, as_json: bool) -> bool:
    """Print what runs; whether all of it does."""
    listed = _list_services(asked, state)
    where = {"server": asked.api, "dashboard": asked.dashboard}
    where |= {each.name: f"pool {each.command[-1]}" for each in _list_workers(listed)}
    where["database"] = f"127.0.0.1:{asked.database_port}"
    asks = {"server": f"{asked.api}/health", "dashboard": asked.dashboard}
    rows: list[dict[str, Any]] = []
    for name, service in listed.items():
        found = services.find(service)
        answers = bool(found) and (name not in asks or _answers(asks[name]))
        rows.append(
            {
                "service": name,
                "status": "runs" if answers else "does not answer" if found else "has ended",
                "pid": found[0] if found else None,
                "where": where[name],
            }
        )
    is_paused = _is_paused(asked, read_secret(state, "api"))
    if as_json:
        print_json({**dataclasses.asdict(asked), "paused": is_paused, "services": rows})
        return all(row["status"] == "runs" for row in rows)
    print_rows(rows, ("service", "status", "pid", "where"), title="deadheat up")
    if is_paused:
        _say("Paused: nothing new begins until `deadheat resume`")
    _say(f"Prefect: {asked.api.removesuffix('/api')}   Dashboard: {asked.dashboard}")
    _say("The server and its UI want what this file holds; our own commands read it themselves:")
    _say(f"  {secret_path(state, 'api')}")
    _say("Other programs reach the server with:")
    _say(f"  export PREFECT_API_URL={asked.api}")
    _say(f"  export PREFECT_API_AUTH_STRING=$(cat {shlex.quote(str(secret_path(state, 'api')))})")
    if not asked.database_port:
        _say("Its database is SQLite: fine for one machine, not for dozens of runs at once.")
    return all(row["status"] == "runs" for row in rows)


def _say(line: str) -> None:
    OUT.print(line, markup=False, highlight=False, soft_wrap=True)

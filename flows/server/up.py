"""The commands `deadheat up`, `down` and `status`: all services of one machine."""

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
from benchcore.running.retention import list_sizes
from benchcore.running.sites import find_pool, load_site
from benchcore.state import State, open_state
from flows.cli import options
from flows.cli.options import option
from flows.cli.printing import print_json, print_line, print_rows
from flows.cli.prune import print_sizes
from flows.server import postgres, services
from flows.server.deploy import CRON, CronOption, Draft, TimezoneOption, draft_deployments
from flows.server.instance import (
    POOL,
    SLURM_SITE,
    Up,
    read_record,
    read_secret,
    record_path,
    secret_path,
)
from flows.server.postgres import Postgres
from flows.server.services import Service
from flows.server.temporary_api import OF_SERVER, set_prefect_defaults, use_server

_SLURM_LOCAL = Path(deployments.__file__).parent / "slurm-local" / "slurm_local.py"
_START_S = 120.0

PortOption = Annotated[
    int,
    option("--port", "PORT", "Serve Prefect's API and UI on this port.", min=1024, max=65535),
]
DashboardPortOption = Annotated[
    int,
    option("--dashboard-port", "PORT", "Serve the dashboard on this port.", min=1024, max=65535),
]
SlurmLocalOption = Annotated[
    bool, option("--slurm-local", None, "Start a local Slurm too, and run campaigns in it.")
]


class Database(StrEnum):
    """The database of Prefect's server."""

    AUTO = "auto"
    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


DatabaseOption = Annotated[
    Database,
    option(
        "--database",
        "NAME",
        "Keep Prefect's runs in postgresql or sqlite; auto: PostgreSQL if installed.",
    ),
]
DatabasePortOption = Annotated[
    int,
    option("--database-port", "PORT", "Serve PostgreSQL on this port.", min=1024, max=65535),
]


def up(
    profile: options.Profile = "laptop",
    cron: CronOption = CRON,
    timezone: TimezoneOption = "UTC",
    port: PortOption = 4200,
    dashboard_port: DashboardPortOption = 4201,
    slurm_local: SlurmLocalOption = False,
    database: DatabaseOption = Database.AUTO,
    database_port: DatabasePortOption = 4202,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Start Prefect's server, a worker, the deployments and the dashboard.

    Rerun it to start what has ended.
    """
    opened = open_state(state)
    chosen = _choose_database(database)
    own = chosen if isinstance(chosen, Postgres) else None
    wanted = Up(
        port=port,
        dashboard_port=dashboard_port,
        slurm_local=slurm_local,
        database_port=database_port if own else None,
    )
    _check_distinct(wanted)
    _check_same(wanted, opened)
    set_prefect_defaults(opened)
    use_server(wanted.api, read_secret(opened, "api"))
    draft = draft_deployments(opened, wanted.site, profile=profile, cron=cron, timezone=timezone)
    listed = _list_services(wanted, opened, own)
    _check_ports(wanted, listed)
    if slurm_local:
        _call_slurm("start", opened)
    if own:
        postgres.make_cluster(own, opened.root / "postgres", secret_path(opened, "database"))
    write_json(record_path(opened), dataclasses.asdict(wanted))
    opened.website.mkdir(parents=True, exist_ok=True)
    ready: dict[str, Callable[[], bool]] = {
        "database": lambda: postgres.open_database(database_port, read_secret(opened, "database")),
        "server": lambda: _answers(f"{wanted.api}/health"),
        "dashboard": lambda: _answers(wanted.dashboard),
    }
    for name in [each for each in ready if each in listed]:
        _run(listed[name], ready[name])
    _deploy(draft, opened)
    for worker in _list_workers(listed):
        _run_worker(worker)
    _report(wanted, opened, as_json)
    if isinstance(chosen, str) and not as_json:
        print_line(f"Why SQLite: {chosen}")


def _list_ports(wanted: Up) -> list[tuple[str, int | None, str]]:
    return [
        ("database", wanted.database_port, "--database-port"),
        ("server", wanted.port, "--port"),
        ("dashboard", wanted.dashboard_port, "--dashboard-port"),
    ]


def _check_distinct(wanted: Up) -> None:
    chosen = [(port, choice) for _, port, choice in _list_ports(wanted) if port is not None]
    if len(dict(chosen)) < len(chosen):
        named = ", ".join(f"{choice} {port}" for port, choice in chosen)
        raise UserError(f"wanted a port of its own for each service, got {named}; change one")


def _check_ports(wanted: Up, listed: dict[str, Service]) -> None:
    for name, port, choice in _list_ports(wanted):
        if port is not None and not services.find(listed[name]):
            services.check_port(port, choice)


def _deploy(draft: Draft, state: State) -> None:
    from tasks.server.apply import apply
    from tasks.server.available_versions import update_forms

    apply(**draft)
    update_forms(state)


def _run_worker(worker: Service) -> None:
    from tasks.server import prefect_server

    pool = worker.command[-1]
    if not services.find(worker):
        prefect_server.crash_orphans(pool)
    _run(worker, lambda: prefect_server.has_worker(pool))


def down(state: options.State = options.STATE) -> None:
    """Stop everything that `deadheat up` started. Runs in progress end as crashed."""
    opened = open_state(state)
    recorded = read_record(opened)
    if recorded is None:
        print_line("nothing is running")
        return
    listed = _list_services(recorded, opened)
    for worker in _list_workers(listed):
        services.stop(worker)
    if services.find(listed["server"]) and _answers(f"{recorded.api}/health"):
        set_prefect_defaults(opened)
        use_server(recorded.api, read_secret(opened, "api"))
        from tasks.server.prefect_server import crash_orphans

        for worker in _list_workers(listed):
            crash_orphans(worker.command[-1])
    for service in reversed(listed.values()):
        services.stop(service)
    if recorded.slurm_local:
        _call_slurm("stop", opened)
    record_path(opened).unlink()
    print_line("stopped")


_SIZES = "Show the size of each part of the state folder instead."


def status(
    sizes: Annotated[bool, typer.Option("--sizes", help=_SIZES)] = False,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Show which services of `deadheat up` run. Exit code 1 if one does not."""
    opened = open_state(state)
    if sizes:
        found = list_sizes(opened)
        print_json({"sizes": found}) if as_json else print_sizes(found, "Now")
        return
    recorded = read_record(opened)
    if recorded is None:
        raise UserError(
            f"wanted services in {str(opened.root)!r}, but none was started; run `deadheat up`"
        )
    if not _report(recorded, opened, as_json):
        raise typer.Exit(1)


def _choose_database(database: Database) -> Postgres | str:
    """The PostgreSQL for Prefect's server, or why it uses SQLite. Raises UserError."""
    if database is Database.SQLITE:
        return "chosen with --database"
    found = postgres.find_postgres()
    if database is Database.POSTGRESQL and isinstance(found, str):
        raise UserError(
            f"wanted PostgreSQL, but {found}; install it, or choose `--database sqlite`"
        )
    return found


def _list_services(wanted: Up, state: State, own: Postgres | None = None) -> dict[str, Service]:
    """The services by name, in the order of their start. Without `own` the database can't be
    started."""
    prefect = (sys.executable, "-m", "prefect")
    auth = read_secret(state, "api")
    environment = {
        "PREFECT_API_URL": wanted.api,
        "PREFECT_API_AUTH_STRING": auth,
        "DEADHEAT_STATE": str(state.root),
        "DEADHEAT_DASHBOARD_URL": wanted.dashboard,
    }
    folder = state.root / "up"
    shared: dict[str, Any] = {"folder": folder, "environment": environment}
    of_server = {**environment, "PREFECT_SERVER_API_AUTH_STRING": auth, **OF_SERVER}
    listed: list[Service] = []
    if port := wanted.database_port:
        url = postgres.make_url(port, read_secret(state, "database"))
        of_server["PREFECT_API_DATABASE_CONNECTION_URL"] = url
        command = own.command(state.root / "postgres", port) if own else ()
        listed.append(Service(name="database", folder=folder, command=command))
    serve = ("server", "start", "--host", "127.0.0.1", "--port", str(wanted.port))
    web = ("http.server", "--bind", "127.0.0.1", "--directory", str(state.website))
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
            command=(sys.executable, "-m", *web, str(wanted.dashboard_port)),
            folder=folder,
        ),
        Service(name="worker", command=(*work, "process", "--pool", POOL), **shared),
    ]
    if wanted.slurm_local:
        pool = f"{SLURM_SITE}-{find_pool(load_site(SLURM_SITE), None)[0]}"
        environment["SLURM_CONF"] = str(state.root / "slurm" / "etc" / "slurm.conf")
        listed.append(
            Service(name="slurm-worker", command=(*work, "slurm", "--pool", pool), **shared)
        )
    return {each.name: each for each in listed}


def _list_workers(listed: dict[str, Service]) -> list[Service]:
    """The workers: their command ends with the name of their pool."""
    return [each for name, each in listed.items() if name.endswith("worker")]


def _check_same(wanted: Up, state: State) -> None:
    recorded = read_record(state)
    if recorded in (None, wanted):
        return
    if any(map(services.find, _list_services(recorded, state).values())):
        requested, running = _list_options(wanted), _list_options(recorded)
        differ = [name for name in requested if requested[name] != running[name]]
        raise UserError(
            f"wanted {', '.join(requested[name] for name in differ)}, but services with "
            f"{', '.join(running[name] for name in differ)} run in {str(state.root)!r}; run "
            "`deadheat down` first, or choose another state folder with --state"
        )


def _list_options(up: Up) -> dict[str, str]:
    """The options that people write for these services, by name. Without a port of PostgreSQL it is
    SQLite."""
    database = up.database_port
    return {
        "port": f"--port {up.port}",
        "dashboard_port": f"--dashboard-port {up.dashboard_port}",
        "slurm_local": "--slurm-local" if up.slurm_local else "no --slurm-local",
        "database": f"--database-port {database}" if database else "--database sqlite",
    }


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


def _is_paused(wanted: Up, auth: str) -> bool | None:
    """Whether `deadheat pause` is in effect; None if the server does not answer."""
    basic = {"Authorization": f"Basic {b64encode(auth.encode()).decode()}"}
    request = urllib.request.Request(f"{wanted.api}/work_pools/{POOL}", headers=basic)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return bool(json.loads(response.read())["is_paused"])
    except (OSError, ValueError, KeyError):
        return None


def _report(wanted: Up, state: State, as_json: bool) -> bool:
    """Print the state of each service; whether all run."""
    listed = _list_services(wanted, state)
    where = {"server": wanted.api, "dashboard": wanted.dashboard}
    where |= {each.name: f"pool {each.command[-1]}" for each in _list_workers(listed)}
    where["database"] = f"127.0.0.1:{wanted.database_port}"
    health = {"server": f"{wanted.api}/health", "dashboard": wanted.dashboard}
    rows: list[dict[str, Any]] = []
    for name, service in listed.items():
        found = services.find(service)
        rows.append(
            {
                "service": name,
                "status": _find_status(len(found), health.get(name)),
                "pid": found[0] if found else None,
                "where": where[name],
            }
        )
    is_paused = _is_paused(wanted, read_secret(state, "api"))
    if as_json:
        print_json({**dataclasses.asdict(wanted), "paused": is_paused, "services": rows})
        return all(row["status"] == "runs" for row in rows)
    print_rows(rows, ("service", "status", "pid", "where"), title="deadheat up")
    if is_paused:
        print_line("Paused: nothing new starts until `deadheat resume`")
    print_line(f"Prefect: {wanted.api.removesuffix('/api')}   Dashboard: {wanted.dashboard}")
    print_line(
        "The server and its UI require this file's secret; `deadheat` commands read it themselves:"
    )
    print_line(f"  {secret_path(state, 'api')}")
    print_line("For other programs:")
    print_line(f"  export PREFECT_API_URL={wanted.api}")
    print_line(
        f"  export PREFECT_API_AUTH_STRING=$(cat {shlex.quote(str(secret_path(state, 'api')))})"
    )
    if not wanted.database_port:
        print_line("Prefect uses SQLite: fine for one machine, not for dozens of concurrent runs.")
    return all(row["status"] == "runs" for row in rows)


def _find_status(num_processes: int, health: str | None) -> str:
    """A service that is being restarted has only its supervisor's process."""
    if num_processes == 0:
        return "not running"
    if num_processes == 1:
        return "restarting"
    return "runs" if health is None or _answers(health) else "does not answer"

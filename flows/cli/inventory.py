"""The commands `deadheat workloads`, `environments` and `verify`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from benchcore.environments.build import list_environments, provision
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import parse_request, resolve
from benchcore.planning import catalog
from benchcore.planning.profiles import load_profile
from benchcore.running.duels import describe_release, find_accelerator
from benchcore.running.sites import load_site
from benchcore.running.verify.preflight import Needs, verify_machine
from benchcore.state import State, open_state
from flows.cli import options
from flows.cli.printing import print_json, print_line, print_rows, report_line


def workloads(as_json: options.Json = False) -> None:
    """List workloads and their cases."""
    rows = [
        {
            "workload": name,
            "case": case,
            **{key: getattr(fields, key) for key in ("use_case", "batch", "precision")},
            "devices": catalog.count_devices(name, case),
            "in": catalog.list_sides(name),
            "for": "fault injection" if catalog.is_faulty(name) else "measuring",
        }
        for name in catalog.list_workloads()
        for case, fields in catalog.load_spec(name).cases.items()
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("workload", "case", "use_case", "batch", "precision", "devices", "in", "for")
    print_rows(rows, columns, title="Workloads")


_LOCK = "Print the lock with this SHA-256 instead (or its first digits): packages with hashes."


def environments(
    build: Annotated[
        list[str] | None,
        options.argument("VERSION", "Versions to build: jax@newest, torch==2.15.0, ..."),
    ] = None,
    lock: Annotated[str | None, options.option("--lock", "SHA256", _LOCK)] = None,
    python: options.Python = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """List environments, after building those you name."""
    opened = open_state(state)
    if lock is not None:
        _print_lock(opened, lock)
        return
    requests = [parse_request(text) for text in build or []]
    interpreters = find_interpreters()
    for request in requests:
        release = resolve(request, interpreters, python=python)
        report_line(f"building {describe_release(release)}")
        provision(
            release,
            opened,
            accelerator=find_accelerator(),
            report=lambda text: report_line(f"  {text}"),
        )
    records = [dataclasses.asdict(record) for record in list_environments(opened)]
    if as_json:
        print_json(records)
        return
    print_rows(records, ("name", "python_version", "build", "key"), title="Environments")


def _print_lock(state: State, sha256: str) -> None:
    """Of an environment that may be gone: `uv pip sync` installs it."""
    from benchcore.store.database import open_database  # takes 1 s, spared the list
    from benchcore.store.incoming.environment_locks import read_lock

    print_line(read_lock(open_database(state.database_url), sha256).rstrip())


_DEVICE = "Try this device with short duels instead: cpu, cuda or cuda:N (3 minutes once built)."


def verify(
    profile: options.Profile = "laptop",
    site: options.Site = "local",
    device: Annotated[str | None, options.option("--device", "NAME", _DEVICE)] = None,
    python: options.Python = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Check that this machine has what a profile and a site need.

    With --device, try a device with short duels instead. Exit code 1 if a requirement is missing or
    a check fails.
    """
    if device is not None:
        _verify_device(device, state, python, as_json)
        return
    from benchcore.store.database import check_database  # takes 1 s, spared `workloads`

    wanted, chosen = load_profile(profile), load_site(site)
    needs = Needs(
        compiler="compiler" in wanted.needs,
        gpu=wanted.device != "cpu",
        slurm=chosen.kind == "slurm",
        prefect_api=chosen.kind == "slurm",
    )
    findings = verify_machine(
        needs, state, check_database=lambda: check_database(State(state.absolute()).database_url)
    )
    if as_json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        rows = [
            {**dataclasses.asdict(finding), "status": finding.status.replace("_", " ")}
            for finding in findings
        ]
        title = f"For profile {profile} on site {chosen.name}"
        print_rows(rows, ("name", "status", "detail"), title=title)
        for finding in findings:
            if finding.status != "ok":
                print_line(f"{finding.name}: {finding.remedy}")
    if any(finding.status == "missing" for finding in findings):
        raise typer.Exit(1)


def _verify_device(device: str, state: Path, python: str | None, as_json: bool) -> None:
    from benchcore.running.verify.device_checks import try_device  # spared `workloads`

    checks = try_device(
        device,
        open_state(state),
        lambda text: report_line(f"  {text}"),
        python=python,
    )
    rows = [dataclasses.asdict(check) for check in checks]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, ("check", "status", "result", "fix"), title=f"Tried on {device}")
    if any(check.status == "failed" for check in checks):
        raise typer.Exit(1)

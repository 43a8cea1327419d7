"""The command line: every step of a campaign, alone or all in order."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from benchcore import campaign as steps
from benchcore import catalog, matrix
from benchcore.adhoc import AdhocDuel, draft_duel
from benchcore.environments import list_environments, provision
from benchcore.errors import CampaignIncompleteError, EnvironmentBuildError, UserError
from benchcore.interpreters import find_interpreters
from benchcore.profiles import load_profile
from benchcore.releases import parse_request, resolve
from benchcore.sites import load_site
from benchcore.state import State, open_state
from flows.compare import compare
from flows.costs import print_costs
from flows.defects import defects
from flows.detect import detect
from flows.display import format_count
from flows.equivalence import equivalence
from flows.judge import judge
from flows.options import (
    STATE,
    CampaignOption,
    JsonOption,
    ProfileOption,
    PythonOption,
    SiteOption,
    StateOption,
)
from flows.printing import ERR, OUT, complain, print_json, print_rows
from flows.running import check_site, measure_plan, run_flow
from flows.shard import shard
from flows.train import train
from flows.waterfall import waterfall
from flows.why import print_bottlenecks

app = typer.Typer(
    help="Dead Heat watches the race between JAX and PyTorch.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(compare)
app.command()(defects)
app.command()(equivalence)
app.command()(waterfall)
app.command()(train)
app.command()(judge)
app.command()(detect)
app.add_typer(shard, name="shard")


@app.command()
def nightly(
    profile: ProfileOption = "laptop",
    site: SiteOption = "local",
    campaign: CampaignOption = None,
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Plan, provision, measure, check, judge and publish. Run again, it resumes."""
    load_profile(profile)
    check_site(site)
    name = campaign or steps.name_night(profile)
    matrix.check_campaign(name)
    opened = open_state(state)

    def run() -> dict[str, Any]:
        from flows.nightly import nightly as flow

        return flow(profile=profile, site=site, campaign=name, python=python)

    _run_flow(run, opened, name, as_json)


@app.command()
def plan(
    profile: ProfileOption = "laptop",
    site: SiteOption = "local",
    campaign: CampaignOption = None,
    python: PythonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what would be measured, with today's versions. Writes nothing."""
    drafted = steps.draft_plan(
        load_profile(profile),
        site=site,
        campaign=campaign or steps.name_night(profile),
        python=python,
    )
    if as_json:
        print_json(matrix.plan_document(drafted))
        return
    rows = [
        {
            "duel": duel.title,
            "device": duel.device,
            "contenders": "\n".join(contender.name for contender in duel.contenders),
            "starts": format_count(duel.starts, duel.max_starts),
            "rounds": format_count(duel.rounds, duel.max_rounds),
            "about_s": f"{duel.expected_s:.0f}",
        }
        for duel in drafted.duels
    ]
    columns = ("duel", "device", "contenders", "starts", "rounds", "about_s")
    print_rows(rows, columns, title=f"{drafted.campaign} on {drafted.site}")
    hours = sum(duel.expected_s for duel in drafted.duels) / 3600
    OUT.print(f"{len(rows)} duels, about {hours:.1f} h", highlight=False)
    for note in drafted.notes:
        OUT.print(f"note: {note}", markup=False, soft_wrap=True)


@app.command()
def run(
    what: Annotated[str, typer.Argument(help="A plan (.json), or the name of a workload.")],
    case: Annotated[str | None, typer.Option("--case", help="Case of the workload.")] = None,
    contender: Annotated[
        list[str] | None,
        typer.Option(
            "--contender", help="Version and settings: jax@newest or torch==2.15.0,compile=none."
        ),
    ] = None,
    starts: Annotated[int, typer.Option("--starts", min=1, max=100)] = 3,
    device: Annotated[
        str | None, typer.Option("--device", help="As for compare; a plan says its own.")
    ] = None,
    site: SiteOption = "local",
    campaign: CampaignOption = None,
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Measure a plan, or one duel of the contenders that you name."""
    opened = open_state(state)
    if what.endswith(".json"):
        if device is not None:
            raise UserError(
                f"a plan says its own device, got --device {device!r:.100} beside it; leave it out"
            )
        drafted = matrix.load_plan(Path(what))
    else:
        asked = AdhocDuel(
            workload=what,
            case=case,
            contenders=tuple(contender or ()),
            starts=starts,
            device=device or "cpu",
        )
        drafted = draft_duel(asked, site=site, campaign=campaign, python=python)
    _run_flow(measure_plan(drafted, opened), opened, drafted.campaign, as_json)


def _run_flow(run: Callable[[], dict[str, Any]], state: State, name: str, as_json: bool) -> None:
    """Run a flow in this process with its progress on stderr, and its outcome on stdout."""
    outcome = run_flow(run, state, name)
    if as_json:
        print_json(outcome)
        return
    _print_ratios(outcome["ratios"], name)
    _print_failures(outcome["failures"])
    OUT.print(f"Dashboard: {outcome['dashboard']}", soft_wrap=True, highlight=False)


def _print_ratios(rows: list[dict[str, Any]], name: str) -> None:
    columns = ("case", "pair", "speedup", "low", "high", "verdict", "counts", "fair")
    print_rows(rows, columns, title=f"{name}: how many times as fast the first is")
    for row in rows:
        if row["outlier"]:
            said = (
                f"outlier: in {row['case']}, {row['outlier']} takes a multiple of the other's time"
            )
            OUT.print(said, markup=False, soft_wrap=True)


def _print_failures(rows: list[dict[str, Any]]) -> None:
    if rows:
        columns = ("case", "name", "status", "cause", "stage", "reason")
        print_rows(rows, columns, title="What did not end well")


@app.command()
def workloads(as_json: JsonOption = False) -> None:
    """List the workloads and their cases."""
    rows = [
        {
            "workload": name,
            "case": case,
            **{key: fields[key] for key in ("use_case", "batch", "precision")},
            "in": catalog.list_sides(name),
            "for": "fault injection" if catalog.is_faulty(name) else "measuring",
        }
        for name in catalog.list_workloads()
        for case, fields in (
            (case, dataclasses.asdict(value))
            for case, value in catalog.load_spec(name).CASES.items()
        )
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("workload", "case", "use_case", "batch", "precision", "in", "for")
    print_rows(rows, columns, title="Workloads")


@app.command()
def environments(
    build: Annotated[
        list[str] | None, typer.Argument(help="Versions to build: jax@newest, torch==2.15.0, ...")
    ] = None,
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """List the environments, after building the ones named."""
    opened = open_state(state)
    requests = [parse_request(text) for text in build or []]
    interpreters = find_interpreters()
    for request in requests:
        release = resolve(request, interpreters, python=python)
        ERR.print(f"building {steps.describe_release(release)}", markup=False)
        provision(
            release,
            opened,
            accelerator=steps.find_accelerator(),
            report=lambda text: ERR.print(f"  {text}", markup=False),
        )
    records = [dataclasses.asdict(record) for record in list_environments(opened)]
    if as_json:
        print_json(records)
        return
    print_rows(records, ("name", "python_version", "build", "key"), title="Environments")


@app.command()
def ingest(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Take the spool's documents and the proofs into the database. Twice changes nothing."""
    from benchcore.store.database import open_database
    from benchcore.store.ingest import ingest_spool
    from benchcore.store.proofs import ingest_proofs

    opened = open_state(state)
    engine = open_database(opened.database_url)
    report, refused = ingest_spool(engine, opened), ingest_proofs(engine, opened)
    if as_json:
        print_json({**dataclasses.asdict(report), "refused_proofs": refused})
    else:
        OUT.print(
            f"{len(report.ingested)} ingested, {len(report.already)} there already, "
            f"{len(report.rejected)} rejected",
            highlight=False,
        )
        for rejection in report.rejected:
            OUT.print(f"{rejection.path}: {rejection.reason}", markup=False, soft_wrap=True)
        for reason in refused:
            OUT.print(reason, markup=False, soft_wrap=True)
    if report.rejected or refused:
        raise typer.Exit(1)


@app.command()
def check(
    campaign: Annotated[str, typer.Argument(help="Name of the campaign.")],
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Let Great Expectations decide which rows count, then judge again."""
    from benchcore.store.database import open_database
    from benchcore.store.outcome import judge_and_list
    from data_checks.campaign import check_campaign

    opened = open_state(state)
    steps.load_campaign(opened, campaign)
    engine = open_database(opened.database_url)
    report = check_campaign(engine, campaign)
    rows = judge_and_list(engine, campaign)
    if as_json:
        marks = [dataclasses.asdict(mark) for mark in report.marks]
        print_json({"marks": marks, "unbounded": report.unbounded, "ratios": rows})
        return
    marks = [dataclasses.asdict(mark) for mark in report.marks]
    columns = ("duel_run", "contender", "other", "expectation", "reason")
    print_rows(marks, columns, title=f"{campaign}: what does not count")
    for case in report.unbounded:
        OUT.print(f"note: {case}", markup=False, soft_wrap=True)
    _print_ratios(rows, campaign)


@app.command()
def report(
    campaign: Annotated[str, typer.Argument(help="Name of the campaign.")],
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Publish a campaign's dashboard again from the database."""
    from benchcore.store.bottlenecks import list_bottlenecks
    from benchcore.store.database import open_database
    from benchcore.store.outcome import (
        list_contenders,
        list_device_ratios,
        list_failures,
        list_profiles,
        list_ratios,
    )
    from benchcore.store.programs import list_programs
    from benchcore.store.workarounds import list_workarounds
    from dashboards.campaign import publish_campaign
    from dashboards.workarounds import describe_workarounds

    opened = open_state(state)
    steps.load_campaign(opened, campaign)
    page = publish_campaign(opened, campaign)
    engine = open_database(opened.database_url)
    rows, contenders = list_ratios(engine, campaign), list_contenders(engine, campaign)
    failures = list_failures(engine, campaign)
    of_model = list_device_ratios(engine, campaign)
    programs = list_programs(engine, campaign)
    why, workarounds = list_bottlenecks(engine, campaign), list_workarounds(engine, campaign)
    if as_json:
        named = {"campaign": campaign, "dashboard": str(page)}
        listed = {"ratios": rows, "contenders": contenders, "failures": failures}
        listed |= {"device_ratios": of_model, "why": why, "workarounds": workarounds}
        listed["programs"] = programs
        print_json({**named, **listed, "profiles": list_profiles(engine, campaign)})
        return
    _print_ratios(rows, campaign)
    if of_model:
        columns = ("case", "pair", "speedup", "low", "high", "verdict", "num_nodes", "device")
        print_rows(of_model, columns, title="For the device model, from its nodes")
    _print_failures(failures)
    if workarounds:
        columns = ("case", "needs", "cure", "price", "evidence")
        print_rows(describe_workarounds(workarounds), columns, title="Workarounds: still needed?")
    print_costs(contenders)
    print_bottlenecks(why)
    if programs:
        print_rows(programs, ("case", "pair", "words"), title="Did the program change?")
    OUT.print(f"Dashboard: {page}", soft_wrap=True, highlight=False)


@app.command()
def verify(
    profile: ProfileOption = "laptop",
    site: SiteOption = "local",
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Show what this machine has and lacks for a profile and a site. Exits with 1 if it lacks."""
    from benchcore.preflight import Needs, verify_machine
    from benchcore.store.database import check_database

    chosen, place = load_profile(profile), load_site(site)
    needs = Needs(
        compiler="compiler" in chosen.needs,
        gpu=chosen.device != "cpu",
        slurm=place.kind == "slurm",
        prefect_api=place.kind == "slurm",
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
        title = f"For profile {profile} on site {place.name}"
        print_rows(rows, ("name", "status", "detail"), title=title)
        for finding in findings:
            if finding.status != "ok":
                OUT.print(f"{finding.name}: {finding.remedy}", markup=False, soft_wrap=True)
    if any(finding.status == "missing" for finding in findings):
        raise typer.Exit(1)


def main() -> None:
    """Entry point: bad input exits with 2, a run that lost something with 1."""
    try:
        app()
    except UserError as error:
        complain(str(error))
        sys.exit(2)
    except (EnvironmentBuildError, CampaignIncompleteError) as error:
        complain(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()

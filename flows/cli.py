"""The command line: every step of a campaign, alone or all in order."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from benchcore import campaign as steps
from benchcore import matrix
from benchcore.adhoc import AdhocDuel, draft_duel
from benchcore.errors import CampaignIncompleteError, EnvironmentBuildError, UserError
from benchcore.profiles import load_profile
from benchcore.state import State, open_state
from benchcore.store.database import is_disk_full
from flows.commands.bisect import bisect
from flows.commands.calibration import calibration
from flows.commands.certificates import certificates
from flows.commands.compare import compare
from flows.commands.confirm import confirm
from flows.commands.costs import print_costs
from flows.commands.defects import defects
from flows.commands.detect import detect
from flows.commands.equivalence import equivalence
from flows.commands.events import events
from flows.commands.inventory import environments, verify, workloads
from flows.commands.judge import judge
from flows.commands.options import (
    STATE,
    CampaignOption,
    JsonOption,
    PoolOption,
    ProfileOption,
    PythonOption,
    SiteOption,
    StateOption,
)
from flows.commands.shard import shard
from flows.commands.suspicions import suspicions
from flows.commands.train import train
from flows.commands.waterfall import waterfall
from flows.commands.why import print_bottlenecks
from flows.display import format_count
from flows.printing import OUT, complain, print_json, print_rows
from flows.running import check_site, measure_plan, run_flow
from flows.server.deploy import deploy
from flows.server.pausing import pause, resume
from flows.server.up import down, status, up

app = typer.Typer(
    help="Dead Heat watches the race between JAX and PyTorch.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for _command in (
    *(compare, defects, equivalence, waterfall, train, judge, detect),
    *(suspicions, confirm, bisect, certificates, calibration, up, down, status, deploy),
    *(pause, resume, workloads, environments, verify),
):
    app.command()(_command)
app.add_typer(shard, name="shard")
app.add_typer(events, name="events")


@app.command()
def nightly(
    profile: ProfileOption = "laptop",
    site: SiteOption = "local",
    pool: PoolOption = None,
    campaign: CampaignOption = None,
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Plan, provision, measure, check, judge and publish. Run again, it resumes."""
    load_profile(profile)
    check_site(site, pool)
    name = campaign or steps.name_night(profile)
    matrix.check_campaign(name)
    opened = open_state(state)

    def run() -> dict[str, Any]:
        from flows.nightly import nightly as flow

        return flow(profile=profile, site=site, pool=pool, campaign=name, python=python)

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
    drafted = steps.draft_night(
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
    print_rows(rows, tuple(rows[0]), title=f"{drafted.campaign} on {drafted.site}")
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
    pool: PoolOption = None,
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
    _run_flow(measure_plan(drafted, opened, pool), opened, drafted.campaign, as_json)


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
            who = f"{row['outlier']} takes a multiple of the other's time"
            OUT.print(f"outlier: in {row['case']}, {who}", markup=False, soft_wrap=True)


def _print_failures(rows: list[dict[str, Any]]) -> None:
    if rows:
        columns = ("case", "name", "status", "cause", "stage", "reason")
        print_rows(rows, columns, title="What did not end well")


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
        for reason in [*(f"{each.path}: {each.reason}" for each in report.rejected), *refused]:
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
    marks = [dataclasses.asdict(mark) for mark in report.marks]
    if as_json:
        print_json({"marks": marks, "unbounded": report.unbounded, "ratios": rows})
        return
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
        named = {"campaign": campaign, "dashboard": str(page), "programs": programs}
        listed = {"ratios": rows, "contenders": contenders, "failures": failures}
        listed |= {"device_ratios": of_model, "why": why, "workarounds": workarounds}
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
    except Exception as error:
        if not is_disk_full(error):
            raise
        complain(
            f"wanted to write, but the disk is full ({error}); free some space, and run the same "
            "command again: what was measured is kept"
        )
        sys.exit(1)


if __name__ == "__main__":
    main()

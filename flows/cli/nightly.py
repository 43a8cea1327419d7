"""The commands `deadheat nightly` and `deadheat run`: measure, and print the outcome."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from benchcore.errors import UserError
from benchcore.planning import matrix
from benchcore.planning.profiles import load_profile
from benchcore.planning.requests import USUAL, Placement
from benchcore.running.plans import AdhocDuel, draft_duel, name_night
from benchcore.running.sites import check_site
from benchcore.state import open_state
from flows.cli import options
from flows.cli.in_process import measure_plan, run_flow
from flows.cli.options import expand_groups, option
from flows.cli.printing import print_failures, print_json, print_line, print_notes, print_ratios


def nightly(
    profile: options.Profile = "laptop",
    site: options.Site = "local",
    pool: options.Pool = None,
    campaign: options.Night = None,
    python: options.Python = None,
    hours: options.Hours = None,
    wait: options.Wait = 0.0,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Measure tonight's duels and publish them.

    Plans, builds environments, measures, checks, judges and publishes. Rerun it to measure only
    what is missing or was disturbed. Exit code 1 if nothing counts.
    """
    load_profile(profile)
    check_site(site, pool)
    name = campaign or name_night(profile)
    matrix.check_campaign_name(name)
    opened = open_state(state)

    def measure() -> dict[str, Any]:
        # Prefect takes its settings when it is imported, and a finished night needs none.
        from flows.nightly import nightly as flow
        from tasks.campaign_run import read_outcome

        ended = flow(
            profile=profile,
            site=site,
            pool=pool,
            campaign=name,
            python=python,
            hours=hours,
            wait_minutes=wait / 60,
            return_state=True,
        )
        return read_outcome(ended)

    print_outcome(run_flow(measure, opened, name, (profile, site, pool, python, hours)), as_json)


_CONTENDER = "Measure this contender; repeat for more: jax@newest, torch==2.15.0,compile=none."
_CASE = "Choose this case of the workload; a plan has its own."
_DEVICE = "Measure on cpu, cuda, cuda:N or tpu (default cpu; a plan has its own)."
_STARTS = _COMPILATIONS = 3


@expand_groups
def run(
    what: Annotated[
        str, options.argument("PLAN|WORKLOAD", "A plan (.json), or a workload's name.")
    ],
    case: Annotated[str | None, option("--case", "NAME", _CASE)] = None,
    contender: Annotated[
        list[str] | None, option("--contender", "VERSION[,KEY=VALUE]", _CONTENDER)
    ] = None,
    starts: options.StartsFrom1 = _STARTS,
    wait: options.Wait = 0.0,
    compilations: options.Compilations = _COMPILATIONS,
    device: Annotated[str | None, option("--device", "NAME", _DEVICE)] = None,
    placement: Placement = USUAL,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Measure a saved plan, or one duel of your own.

    `deadheat plan --json > plan.json` saves a plan. A duel of your own measures no ceilings: its
    pairs count only if the last 30 days have some for this device.
    """
    opened = open_state(state)
    if what.endswith(".json"):
        own = {"case": case, "contender": contender, "device": device}
        own |= {"starts": starts != _STARTS, "compilations": compilations != _COMPILATIONS}
        own |= {"campaign": placement.campaign, "python": placement.python}
        _refuse(name for name, value in own.items() if value)
        drafted = matrix.load_plan(Path(what))
        _refuse(["site"] if placement.site not in (USUAL.site, drafted.site) else [])
    else:
        wanted = AdhocDuel(
            workload=what,
            case=case,
            contenders=tuple(contender or ()),
            starts=starts,
            compilations=compilations,
            device=device or "cpu",
        )
        drafted = draft_duel(wanted, placement)
    print_outcome(measure_plan(drafted, opened, placement.pool, wait_s=wait), as_json)


def _refuse(names: Iterable[str]) -> None:
    """Raise UserError if there is an option that a plan would ignore."""
    if given := ", ".join(f"--{each}" for each in names):
        raise UserError(f"a plan names its own values, got {given} as well; leave it out")


def print_outcome(outcome: dict[str, Any], as_json: bool) -> None:
    """Print what a campaign found. Exit code 1 if nothing counts."""
    void = outcome["void"]
    if as_json:
        print_json(outcome)
    else:
        _print_tables(outcome)
    if void:
        raise typer.Exit(1)


def _print_tables(outcome: dict[str, Any]) -> None:
    if outcome["void"]:
        print_line(outcome["void"])
    print_notes(outcome["notes"])
    print_ratios(outcome["ratios"], outcome["campaign"])
    print_failures(outcome["failures"])
    print_line(f"Dashboard: {outcome['dashboard']}")

"""The command `deadheat plan`: what a night would measure."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from benchcore.planning import matrix
from benchcore.planning.profiles import load_profile
from benchcore.planning.requests import Placement
from benchcore.running.plans import draft_night, expect_durations
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.reports.starts_needed import StartsNeeded, list_starts_needed
from flows.cli import options
from flows.cli.printing import print_json, print_line, print_notes, print_rows
from flows.cli.progress_display import format_range


def plan(
    profile: options.Profile = "laptop",
    site: options.Site = "local",
    campaign: options.Night = None,
    python: options.Python = None,
    hours: options.Hours = None,
    detect: Annotated[
        float | None,
        typer.Option(
            "--detect",
            metavar="RATIO",
            min=0.0001,
            max=1.0,
            help="Print instead how many starts a confirmation of this change needs: 0.02 is 2 %.",
        ),
    ] = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Show what a night would measure, with today's versions. Writes nothing."""
    chosen, folder = load_profile(profile), State(state.expanduser().absolute())
    if detect is not None:
        cases = {(match.workload, match.case) for match in chosen.matches}
        engine = open_database(folder.database_url)
        _print_starts(list_starts_needed(engine, cases, math.log1p(detect)), detect, as_json)
        return
    place = Placement(site=site, campaign=campaign, python=python)
    drafted = draft_night(chosen, place, folder, hours=hours)
    if as_json:
        print_json(matrix.plan_document(drafted))
        return
    expected_s = expect_durations(folder, drafted.site)
    rows = [
        {
            "duel": duel.title,
            "device": duel.device,
            "contenders": "\n".join(contender.name for contender in duel.contenders),
            "starts": format_range(duel.limits.starts, duel.limits.most_starts),
            "rounds": format_range(duel.limits.rounds, duel.limits.most_rounds),
            "about_s": f"{expected_s(duel):.0f}",
        }
        for duel in drafted.duels
    ]
    print_rows(rows, tuple(rows[0]), title=f"{drafted.campaign} on {drafted.site}")
    expected_h = sum(map(expected_s, drafted.duels)) / 3600
    print_line(f"{len(rows)} duels, about {expected_h:.1f} h")
    print_notes(drafted.notes)


def _print_starts(found: list[StartsNeeded], change: float, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    if not found:
        print_line("No pair of this profile has been measured yet; run deadheat nightly first.")
        return
    rows = [
        {
            "case": f"{each.workload} {each.case}",
            "pair": each.pair,
            "nights": str(each.num_nights),
            "spread": "-" if each.spread is None else f"{each.spread.starts:.2%}",
            "starts": "-" if each.starts is None else str(each.starts),
            "minutes": "-" if each.minutes is None else f"{each.minutes:.0f}",
            "remark": each.reason,
        }
        for each in found
    ]
    title = f"Starts that show a change of {change:.1%} with a power of 95 %"
    print_rows(rows, tuple(rows[0]), title=title)

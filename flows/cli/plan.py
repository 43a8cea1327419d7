"""The command `deadheat plan`: what a night would measure."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Annotated

import typer

from benchcore.errors import UserError
from benchcore.names import format_percent
from benchcore.planning import matrix
from benchcore.planning.hours import expect_night
from benchcore.planning.profiles import load_profile
from benchcore.planning.requests import Placement
from benchcore.running.plans import draft_night, expect_durations, open_existing
from benchcore.state import State
from flows.cli import options
from flows.cli.printing import print_json, print_line, print_notes, print_rows
from flows.cli.progress_display import format_range

if TYPE_CHECKING:  # SQLAlchemy takes 0.5 s
    from benchcore.store.reports.starts_needed import StartsNeeded

_LEAST, _MOST = 0.0001, 1.0


def _parse_change(given: str) -> float:
    """`0.02` or `2%` as a ratio. Raises UserError."""
    try:
        change = float(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    except ValueError:
        change = math.nan
    if not _LEAST <= change <= _MOST:
        raise UserError(
            f"wanted a change from 0.01 % to 100 % after --detect, got {given!r:.100}; write 2 % "
            "as 0.02 or 2%"
        )
    return change


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
            parser=_parse_change,
            help="Print instead how many starts show this change with 95 % power: 0.02 or 2%.",
        ),
    ] = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Show what a night would measure, with today's versions. Writes nothing."""
    chosen, folder = load_profile(profile), State(state.expanduser().absolute())
    if detect is not None:
        from benchcore.store.reports.starts_needed import list_starts_needed

        cases = {(each.workload, each.case) for each in chosen.matches if len(each.arms) > 1}
        found = list_starts_needed(open_existing(folder), cases, math.log1p(detect))
        _print_starts(found, detect, as_json)
        return
    placement = Placement(site=site, campaign=campaign, python=python)
    drafted = draft_night(chosen, placement, folder, hours=hours)
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
    expected_h = expect_night(drafted.duels, expected_s) / 3600
    on_top = "missing environments and first proofs come on top"
    print_line(f"{len(rows)} duels, about {expected_h:.1f} h; {on_top}")
    print_notes(drafted.notes)


def _print_starts(found: list[StartsNeeded], change: float, as_json: bool) -> None:
    if as_json:
        print_json([dataclasses.asdict(each) for each in found])
        return
    if not any(each.num_nights for each in found):
        print_line("No pair of this profile has been measured yet; run deadheat nightly first.")
        return
    rows = [
        {
            "case": f"{each.workload} {each.case}",
            "pair": each.pair,
            "device": each.device_name,
            "nights": str(each.num_nights),
            "spread": "-" if each.spread is None else format_percent(each.spread.starts, 2),
            "starts": "-" if each.starts is None else str(each.starts),
            "minutes": "-" if each.minutes is None else f"{each.minutes:.0f}",
            "remark": each.reason,
        }
        for each in found
    ]
    title = f"Starts that show a change of {format_percent(change, 1)} with a power of 95 %"
    print_rows(rows, tuple(rows[0]), title=title)

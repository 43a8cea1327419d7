"""The command `deadheat plan`: what a night would measure."""

from __future__ import annotations

from benchcore.planning import matrix
from benchcore.planning.profiles import load_profile
from benchcore.running.plans import draft_night, name_night
from benchcore.state import State
from flows.cli import options
from flows.cli.printing import print_json, print_line, print_notes, print_rows
from flows.cli.progress_display import format_count


def plan(
    profile: options.Profile = "laptop",
    site: options.Site = "local",
    campaign: options.Night = None,
    python: options.Python = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Show what a night would measure, with today's versions. Writes nothing."""
    drafted = draft_night(
        load_profile(profile),
        site=site,
        campaign=campaign or name_night(profile),
        state=State(state.expanduser().absolute()),
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
            "starts": format_count(duel.limits.starts, duel.limits.most_starts),
            "rounds": format_count(duel.limits.rounds, duel.limits.most_rounds),
            "about_s": f"{duel.expected_s:.0f}",
        }
        for duel in drafted.duels
    ]
    print_rows(rows, tuple(rows[0]), title=f"{drafted.campaign} on {drafted.site}")
    hours = sum(duel.expected_s for duel in drafted.duels) / 3600
    print_line(f"{len(rows)} duels, about {hours:.1f} h")
    print_notes(drafted.notes)

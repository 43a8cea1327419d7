"""The command `deadheat confirm`: fresh starts of old against new, and which framework changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from benchcore import variables
from benchcore.experiments.changes.confirm import COLUMNS, ConfirmRequest, run_confirmation
from benchcore.experiments.rounds import check_looks, make_context
from benchcore.state import open_state
from flows.cli import options
from flows.cli.in_process import ConsoleMeasurer
from flows.cli.options import option
from flows.cli.printing import print_error, print_json, print_line, print_rows

_MAX_CANDIDATES = 12


def confirm(
    suspicion: Annotated[
        list[int] | None,
        options.argument("SUSPICION", "Ids of suspicions (default: every open one)."),
    ] = None,
    looks: options.Looks = None,
    budget: Annotated[
        float,
        option("--budget", "SECONDS", "Measure no further suspicion after this long.", min=0.0),
    ] = 3600.0,
    profile: options.Limits = "laptop",
    site: options.Site = "local",
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Measure suspicions again with fresh starts, and name the framework that changed.

    Every confirmed change becomes an event, and is sent to DEADHEAT_NOTIFY and
    DEADHEAT_WEBHOOK_URL: one message per release.
    """
    from dashboards.publish import refresh_pages  # which other commands do without
    from tasks.alerts import draw_suspicion, emit_shift, use_stored_addresses

    emits = variables.PREFECT_API_URL.read() is not None  # measuring sets that of its own server
    opened = open_state(state)
    request = ConfirmRequest(
        suspicions=tuple(suspicion or ()),
        looks=check_looks(looks),
        budget_s=budget,
        context=make_context(profile, site),
    )
    use_stored_addresses()
    found = run_confirmation(request, opened, ConsoleMeasurer(opened), draw_suspicion(opened))
    for each in found.alerts if emits else ():
        emit_shift(each)
    if found.alerts:
        refresh_pages(opened)  # the alerts link to their events
    if as_json:
        print_json(found.rows)
    else:
        print_confirmation(found.rows)
    for reason in found.unsent:
        print_error(reason)
    if found.unsent:
        raise typer.Exit(1)


def print_confirmation(rows: Sequence[Mapping[str, Any]]) -> None:
    """A row per suspicion; for confirmed ones also what differs."""
    if not rows:
        print_line("no suspicion is open")
        return
    print_rows(rows, COLUMNS, title="Result of fresh starts")
    for row in rows:
        if row["verdict"] == "confirmed" and row["candidates"]:
            columns = ("side", "kind", "name", "old", "new")
            title = f"Suspicion {row['suspicion']}: what differs, the likeliest cause first"
            print_rows(row["candidates"][:_MAX_CANDIDATES], columns, title=title)
        notes = [f"a start does not count: {each}" for each in row.get("lost", ())]
        notes += [row["machine"]["summary"]] if row.get("machine") else []
        notes += [f"a start has no probe: {each}" for each in row.get("probe_failures", ())]
        for note in dict.fromkeys(notes):
            print_line(f"suspicion {row['suspicion']}: {note}")

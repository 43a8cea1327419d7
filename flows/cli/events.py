"""The commands `deadheat events ...`: confirmed changes, and how people triage them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from benchcore.names import format_move, format_signed
from benchcore.state import open_state
from benchcore.store.database import Engine, open_database
from benchcore.store.history.events import annotate_event, list_events, move_event, show_event
from benchcore.store.history.history_documents import save_history
from flows.cli import options
from flows.cli.options import option
from flows.cli.printing import OUT, print_json, print_line, print_rows

events = typer.Typer(
    help="List confirmed changes; show, acknowledge or annotate one.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
)

_EventArgument = Annotated[int, options.argument("EVENT", "Id of the event.")]
_AS = (
    "Set investigating, infrastructure, invalid, duplicate, accepted, fixed, wont_fix or "
    "improvement."
)


@events.callback()
def list_all(
    context: typer.Context, state: options.State = options.STATE, as_json: options.Json = False
) -> None:
    """List confirmed changes; show, acknowledge or annotate one."""
    if context.invoked_subcommand is not None:
        return
    rows = list_events(_open(state))
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_line("no events")
        return
    table = [{**row, "ratio moved": _move(row)} for row in rows]
    columns = ("id", "state", "series", "since", "culprit", "ratio moved", "owner", "reason")
    print_rows(table, columns, title="Confirmed shifts; above 0 = better for the first side")


@events.command()
def show(
    event: _EventArgument, state: options.State = options.STATE, as_json: options.Json = False
) -> None:
    """Show one event: what was found, what differs, and what was done."""
    found = show_event(_open(state), event)
    if as_json:
        print_json(found)
        return
    head = f"Event {found['id']}, {found['state']}: {found['series']}, since {found['since']}"
    OUT.print(head, style="bold", markup=False, soft_wrap=True)
    print_line(
        f"The ratio changed by {_move(found)}. Culprit: {found['culprit']}. Found: "
        f"{found['reason']}."
    )
    print_line(f"Owner: {found['owner'] or 'none'}. Device: {found['device_model']}.")
    candidates = (found["finding"] or {}).get("candidates", [])
    if candidates:
        columns = ("side", "kind", "name", "old", "new")
        print_rows(candidates, columns, title="What differs, the likeliest first")
    if found["conditions"]:
        print_rows(found["conditions"], ("name", "old", "new"), title="Conditions that changed")
    print_rows(found["history"], ("at", "who", "old", "new", "note"), title="What was done")


@events.command()
def acknowledge(
    event: _EventArgument,
    to: Annotated[str, option("--as", "STATE", _AS)],
    by: Annotated[str, option("--by", "NAME", "Record who decided.")],
    note: Annotated[str, option("--note", "TEXT", "Record why.")] = "",
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Change the state of an event. Accepted, wont_fix and improvement set a new baseline."""
    engine = _open(state)
    move_event(engine, event, to, who=by, note=note)
    save_history(engine, open_state(state))
    _print_state(engine, event, as_json)


@events.command()
def annotate(
    event: _EventArgument,
    by: Annotated[str, option("--by", "NAME", "Record who wrote this.")],
    note: Annotated[str, option("--note", "TEXT", "Add this note.")] = "",
    owner: Annotated[str | None, option("--owner", "NAME", "Assign the event.")] = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Add a note to an event, or assign it."""
    engine = _open(state)
    annotate_event(engine, event, who=by, note=note, owner=owner)
    save_history(engine, open_state(state))
    _print_state(engine, event, as_json)


def _print_state(engine: Engine, event: int, as_json: bool) -> None:
    found = show_event(engine, event)
    if as_json:
        print_json(found)
    else:
        print_line(f"event {event} is {found['state']}")


def _open(state: Path) -> Engine:
    return open_database(open_state(state).database_url)


def _move(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return "an unknown amount"
    if row["low"] is None or row["high"] is None:
        return format_signed(row["ratio"] - 1)
    return format_move(*(row[name] - 1 for name in ("ratio", "low", "high")))

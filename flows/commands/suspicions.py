"""The command `deadheat suspicions`: what the histories of the database make us ask."""

from __future__ import annotations

import dataclasses

from benchcore.sites import load_site
from benchcore.state import open_state
from flows.commands.options import STATE, JsonOption, SiteOption, StateOption
from flows.printing import OUT, print_json, print_rows


def suspicions(
    site: SiteOption = "local", state: StateOption = STATE, as_json: JsonOption = False
) -> None:
    """List what the histories of all series make us ask; one a shift, the open ones first."""
    from benchcore.store.database import open_database
    from benchcore.store.series import read_series
    from benchcore.store.suspicions import list_modes, list_suspicions
    from benchcore.verdict.history import FEWEST_NIGHTS
    from tasks.wide import ask_histories

    opened, place = open_state(state), load_site(site)
    engine = open_database(opened.database_url)
    series = read_series(engine)
    found = ask_histories(engine, place, opened, series)
    rows, modes = list_suspicions(engine), list_modes(series, found)
    short = [each for each in series if len(each.nights) < FEWEST_NIGHTS]
    if as_json:
        listed = [{**dataclasses.asdict(each.key), "nights": len(each.nights)} for each in series]
        print_json({"suspicions": rows, "series": listed, "modes": modes})
        return
    if rows:
        told = [{**row, "move": f"{row['ratio'] - 1:+.1%}", "95 %": _interval(row)} for row in rows]
        columns = ("id", "state", "series", "since", "trigger", "move", "95 %", "reason")
        title = "What history makes us ask; above 0 = the first gained on the second"
        print_rows(told, columns, title=title)
    open_ones = sum(row["state"] == "open" for row in rows)
    OUT.print(f"{len(series)} series, suspicions open: {open_ones}", highlight=False)
    for each in modes:
        said = f"{each['series']}: {each['words']}"
        OUT.print(said, markup=False, soft_wrap=True, highlight=False)
    for each in short:
        said = f"{each.key.title}: {len(each.nights)} nights of the {FEWEST_NIGHTS} it takes"
        OUT.print(said, markup=False, soft_wrap=True)


def _interval(row: dict[str, object]) -> str | None:
    low, high = row["low"], row["high"]
    if not isinstance(low, float) or not isinstance(high, float):
        return None
    return f"{low - 1:+.1%} to {high - 1:+.1%}"

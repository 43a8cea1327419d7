"""The command `deadheat suspicions`: changes that the histories suggest."""

from __future__ import annotations

from benchcore.names import format_ends, format_signed
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.history.history_documents import save_history
from benchcore.store.history.series import describe_series, list_short
from benchcore.store.history.suspicions import (
    list_modes,
    list_suspicions,
    read_recent,
    refresh_suspicions,
)
from benchcore.store.metrics import TRACKED, find_tracked
from flows.cli import options
from flows.cli.printing import print_json, print_line, print_rows


def suspicions(
    metric: options.Metric = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """List suspected changes in all series, open ones first. One suspicion per change.

    Every tracked metric has series: the ratio of the frameworks, and each framework against its
    older version in the same duel.
    """
    wanted = TRACKED if metric is None else (find_tracked(metric).key,)
    opened = open_state(state)
    engine = open_database(opened.database_url)
    series = read_recent(engine, wanted)
    found = refresh_suspicions(engine, series)
    save_history(engine, opened)
    rows = [row for row in list_suspicions(engine) if row["metric"] in wanted]
    modes = list_modes(series, found)
    if as_json:
        listed = [describe_series(each) for each in series]
        print_json({"suspicions": rows, "series": listed, "modes": modes})
        return
    if rows:
        table = [
            {
                **row,
                "metric": row["heading"],
                "move": format_signed(row["ratio"] - 1),
                "95 %": _interval(row),
            }
            for row in rows
        ]
        columns = ("id", "state", "series", "since", "trigger", "move", "95 %", "reason")
        title = "Suspected changes; above 0 = better for the first side"
        print_rows(table, columns, title=title)
    open_ones = sum(row["state"] == "open" for row in rows)
    print_line(f"{len(series)} series, suspicions open: {open_ones}")
    for row in rows:
        changed = ", ".join("{name} {old} to {new}".format(**each) for each in row["conditions"])
        if changed:
            print_line(f"suspicion {row['id']}, conditions that changed: {changed}")
    for each in series:
        for bridge in each.bridges:
            print_line(f"{each.key.title}: {bridge.summary}")
    for each in modes:
        print_line(f"{each['series']}: {each['summary']}")
    for line in list_short(series):
        print_line(line)


def _interval(row: dict[str, object]) -> str | None:
    low, high = row["low"], row["high"]
    if not isinstance(low, float) or not isinstance(high, float):
        return None
    return format_ends(low - 1, high - 1)

"""The command `deadheat demo`: the dashboard of a made-up year."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

from benchcore.demo.findings import write_findings
from benchcore.demo.story import DAYS, MADE_UP
from benchcore.demo.write import open_demo, write_nights
from benchcore.running.plans import today
from benchcore.store.database import open_database
from flows.cli import options
from flows.cli.printing import print_json, print_line

_FOLDER = "Write into this folder: a new one, or one of an earlier demo."
_DAYS = "Write this many nights."
_LAST = "End with this night (default: yesterday, UTC)."


def demo(
    folder: Annotated[Path, options.option("--folder", "FOLDER", _FOLDER)] = Path("demo"),
    days: Annotated[int, options.option("--days", "COUNT", _DAYS, min=2, max=DAYS)] = DAYS,
    last: Annotated[
        datetime | None, options.option("--last", "DATE", _LAST, formats=["%Y-%m-%d"])
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Build the dashboard of a made-up year, without measuring anything.

    Every page is marked as made up. An earlier demo in the folder is replaced.
    """
    from dashboards.publish import publish_campaign  # which the help does without

    day = today() - timedelta(days=1) if last is None else last.date()
    state = open_demo(folder)
    engine = open_database(state.database_url, made_up=True)
    nights = write_nights(state, engine, day, days)
    write_findings(engine, day)
    page = publish_campaign(state, nights[-1].plan.campaign)  # a new dashboard gets every night
    if as_json:
        print_json({"note": MADE_UP, "state": str(state.root), "dashboard": str(page)})
        return
    print_line(MADE_UP)
    print_line(f"Dashboard: {page}")

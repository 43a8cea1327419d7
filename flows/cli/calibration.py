"""The command `deadheat calibration`: how often our own verdicts are wrong."""

from __future__ import annotations

from typing import Annotated

from benchcore.experiments.changes.calibrate import run_calibration
from benchcore.experiments.rounds import make_context
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.reports.calibration import measure_calibration
from dashboards.listings.error_rates import (
    list_calibration_runs,
    list_rates,
    list_smallest,
    summarise_error_rates,
)
from flows.cli import options
from flows.cli.in_process import ConsoleMeasurer
from flows.cli.printing import print_json, print_line, print_rows

_MEASURE = "Measure this many more calibration runs first."
_PROFILE = "Measure this profile's calibration runs: laptop or h100."


def calibration(
    measure: Annotated[
        int,
        options.option("--measure", "COUNT", _MEASURE, min=0, max=1000),
    ] = 0,
    profile: Annotated[str, options.option("--profile", "NAME", _PROFILE)] = "laptop",
    site: options.Site = "local",
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Show how often our own verdicts are wrong, from runs whose truth is known.

    Nights of profiles with calibration cases (laptop, h100) measure some of these runs.
    """
    context = make_context(profile, site)
    opened = open_state(state)
    if measure:
        run_calibration(measure, context, ConsoleMeasurer(opened))
    found = measure_calibration(open_database(opened.database_url))
    if as_json:
        print_json(found)
        return
    print_line(summarise_error_rates(found))
    if found["runs"]:
        print_rows(
            list_calibration_runs(found),
            ("series", "truth", "measured", "starts", "outcome", "culprit"),
            title="Calibration runs, newest first",
        )
        columns = ("what", "of", "count", "share", "note")
        print_rows(
            list_rates(found), columns, title="How often our own verdicts are wrong; 95 % intervals"
        )
    if found["smallest"]:
        columns = ("series", "smallest", "nights", "starts")
        title = "The smallest change that a confirmation's first 5 starts find in 4 of 5 cases"
        print_rows(list_smallest(found), columns, title=title)
    for reason in dict.fromkeys(found["lost"]):
        print_line(f"a start does not count: {reason}")

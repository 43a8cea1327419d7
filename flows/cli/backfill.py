"""The command `deadheat backfill`: measure past versions, and find what each changed."""

from __future__ import annotations

from typing import Annotated

import typer

from benchcore.errors import CampaignIncompleteError
from benchcore.experiments.releases.backfill import (
    CHANGE_COLUMNS,
    describe_changes,
    find_versions,
    judge_backfill,
    list_changes,
    list_versions,
    plan_backfill,
)
from benchcore.experiments.rounds import make_context
from benchcore.running.plans import is_planned, load_campaign
from benchcore.state import open_state
from flows.cli import options
from flows.cli.in_process import ConsoleMeasurer, measure_plan
from flows.cli.options import option
from flows.cli.printing import print_json, print_line, print_rows

_VERSIONS = "Measure this many versions, of those that can be installed here."
_FRAMEWORK = "Framework whose past versions are measured: jax or torch."
_BELOW = "Measure only versions before this one (default: begin with the newest)."
_BUDGET = "Start no further measurement of an apparent change after this long."


def backfill(
    framework: Annotated[str, options.argument("FRAMEWORK", _FRAMEWORK)],
    versions: Annotated[int, option("--versions", "COUNT", _VERSIONS, min=2, max=30)] = 8,
    below: Annotated[str | None, option("--below", "VERSION", _BELOW)] = None,
    budget: Annotated[float, option("--budget", "SECONDS", _BUDGET, min=0.0, max=86400.0)] = 3600.0,
    campaign: Annotated[str | None, options.campaign_option("backfill-FRAMEWORK")] = None,
    profile: options.Profile = "history",
    site: options.Site = "local",
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Measure past versions of a framework, and list what each changed.

    One campaign measures all versions. An apparent change between a version and the one before it
    is measured again in fresh starts, and listed only if these show it. Rerun it to resume.
    """
    options.check_framework(framework)
    name = campaign or f"backfill-{framework}"
    context = make_context(profile, site)
    opened = open_state(state)
    measurer = ConsoleMeasurer(opened)
    if not is_planned(opened, name):
        past = find_versions(framework, below=below, count=versions)
        plan_backfill(framework, past, context, name, opened)
        for each in list_versions(past):
            measurer.report(f"{framework} {each['version']}: {each['why not'] or 'is measured'}")
    lost = None
    try:
        outcome = measure_plan(load_campaign(opened, name), opened)
    except CampaignIncompleteError as error:  # the rest is judged
        if error.outcome is None:
            raise
        outcome, lost = error.outcome, error
    if outcome["void"]:
        print_line(outcome["void"])
        raise typer.Exit(1)
    found = judge_backfill(framework, name, budget, opened, measurer)
    changes = list_changes(found)
    if as_json:
        print_json({"changes": changes, "sentences": describe_changes(found)})
    else:
        title = f"Changes by versions of {framework}, newest first"
        print_rows(changes, CHANGE_COLUMNS, title=title)
        for line in describe_changes(found):
            print_line(line)
        print_line(f"Dashboard: {outcome['dashboard']}")
    if lost is not None:
        raise lost

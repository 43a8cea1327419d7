"""The commands `deadheat ingest`, `check` and `report`: the last parts of a campaign."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from benchcore.running.plans import load_plan_or_empty
from benchcore.state import open_state
from benchcore.store.database import Engine, open_database
from benchcore.store.frames.profiles import list_bottlenecks
from benchcore.store.history.history_documents import load_history
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.incoming.proofs import ingest_proofs
from benchcore.store.metrics import METRICS
from benchcore.store.reports.campaign import (
    judge_and_list,
    list_contenders,
    list_device_ratios,
    list_failures,
    list_profiles,
    list_programs,
    list_ratios,
)
from benchcore.store.reports.workarounds import list_crashed, list_workarounds
from dashboards.formatting import format_metric
from dashboards.listings.tables import describe_unsteady
from dashboards.listings.workarounds import describe_workarounds
from flows.cli import options
from flows.cli.bottlenecks import print_bottlenecks
from flows.cli.printing import (
    print_failures,
    print_json,
    print_line,
    print_notes,
    print_ratios,
    print_rows,
)

_CampaignArgument = Annotated[str, options.argument("CAMPAIGN", "Name of the campaign.")]


def ingest(state: options.State = options.STATE, as_json: options.Json = False) -> None:
    """Load result documents and proofs from the state folder into the database.

    Loading one twice changes nothing. Exit code 1 if a document was refused.
    """
    opened = open_state(state)
    engine = open_database(opened.database_url)
    report, refused = ingest_spool(engine, opened), ingest_proofs(engine, opened)
    refused += load_history(engine, opened)  # into a new database
    if as_json:
        print_json({**dataclasses.asdict(report), "refused_proofs": refused})
    else:
        print_line(
            f"{len(report.ingested)} ingested, {len(report.already)} already stored, "
            f"{len(report.rejected)} refused"
        )
        for reason in [*(f"{each.path}: {each.reason}" for each in report.rejected), *refused]:
            print_line(reason)
    if report.rejected or refused:
        raise typer.Exit(1)


def check(
    campaign: _CampaignArgument, state: options.State = options.STATE, as_json: options.Json = False
) -> None:
    """Decide which rows count, then judge them again.

    Great Expectations checks equivalence, physics, telemetry and completeness.
    """
    from data_checks.check import check_campaign  # Great Expectations takes seconds

    opened = open_state(state)
    planned = load_plan_or_empty(opened, campaign).duels
    engine = open_database(opened.database_url)
    report = check_campaign(engine, campaign, opened.data_docs(campaign), planned)
    rows = judge_and_list(engine, campaign)
    failed = [dataclasses.asdict(each) for each in report.failed_checks]
    if as_json:
        found = {"failed_checks": failed, "problems": report.problems}
        print_json({**found, "unbounded": report.unbounded, "ratios": rows})
        return
    columns = ("duel_run", "contender", "other", "expectation", "reason")
    for severity, title in (("critical", "what does not count"), ("warning", "warnings")):
        listed = [each for each in failed if each["severity"] == severity]
        if listed or severity == "critical":
            print_rows(listed, columns, title=f"{campaign}: {title}")
    for problem in report.problems:
        print_line(f"incomplete: {problem}")
    for case in report.unbounded:
        print_line(f"note: {case}")
    print_ratios(rows, campaign)


def report(
    campaign: _CampaignArgument, state: options.State = options.STATE, as_json: options.Json = False
) -> None:
    """Publish a campaign's dashboard again from the database."""
    from dashboards.publish import publish_campaign  # which `ingest` does without

    opened = open_state(state)
    notes = load_plan_or_empty(opened, campaign).notes
    page = publish_campaign(opened, campaign)
    found = _read_report(open_database(opened.database_url), campaign)
    if as_json:
        print_json({"campaign": campaign, "dashboard": str(page), "notes": notes, **found})
        return
    print_notes(notes)
    _print_report(found, campaign)
    print_line(f"Dashboard: {page}")


def _read_report(engine: Engine, campaign: str) -> dict[str, Any]:
    return {
        "programs": list_programs(engine, campaign),
        "ratios": list_ratios(engine, campaign),
        "contenders": list_contenders(engine, campaign),
        "failures": list_failures(engine, campaign),
        "device_ratios": list_device_ratios(engine, campaign),
        "why": list_bottlenecks(engine, campaign),
        "workarounds": list_workarounds(engine, campaign, list_crashed(engine)),
        "profiles": list_profiles(engine, campaign),
    }


def _print_report(found: dict[str, Any], campaign: str) -> None:
    print_ratios(found["ratios"], campaign)
    if found["device_ratios"]:
        columns = ("case", "pair", "speedup", "low", "high", "verdict", "num_nodes", "device")
        print_rows(found["device_ratios"], columns, title="For the device model, from its nodes")
    print_failures(found["failures"])
    if found["workarounds"]:
        columns = ("case", "still needed", "workaround", "cost", "to report upstream")
        rows = describe_workarounds(found["workarounds"])
        print_rows(rows, columns, title="Workarounds: still needed?")
    print_costs(found["contenders"])
    print_bottlenecks(found["why"])
    if found["programs"]:
        columns = ("case", "pair", "summary")
        print_rows(found["programs"], columns, title="Did the program change?")


def print_costs(contenders: Sequence[Mapping[str, Any]]) -> None:
    """The rows of `benchcore.store.reports.campaign.list_contenders`, with a remark where a
    contender was not steady when its clock began."""
    for case, of_case in groupby(contenders, key=lambda row: row["case"]):
        rows = list(of_case)
        names = [row["name"] for row in rows]
        measured = [
            metric for metric in METRICS if any(row[metric.key] is not None for row in rows)
        ]
        table = [
            {
                "": metric.title.lower(),
                **{row["name"]: format_metric(metric, row[metric.key]) for row in rows},
            }
            for metric in measured
        ]
        remarks = {row["name"]: describe_unsteady(row) for row in rows}
        if any(remarks.values()):
            table.append({"": "when its clock began", **remarks})
        print_rows(table, ("", *names), title=f"{case}: what a step took")
        missing = "; ".join(each.title.lower() for each in METRICS if each not in measured)
        if missing:
            print_line(f"Not measured: {missing}.")

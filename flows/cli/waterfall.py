"""The command `deadheat waterfall`: what torch gains step by step, and where JAX stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from benchcore.experiments.compare import MIN_STARTS, CaseFilter
from benchcore.experiments.waterfall import (
    WaterfallRequest,
    draft_waterfall,
    find_duel,
    list_steps,
    name_arms,
)
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.frames.profiles import list_bottlenecks
from benchcore.store.reports.waterfalls import read_waterfall
from dashboards.publish import publish_campaign
from dashboards.waterfall_page import describe_total, list_arms, publish_waterfall
from flows.cli.in_process import measure_plan
from flows.cli.options import (
    STATE,
    BatchOption,
    CampaignOption,
    CaseOption,
    DeviceOption,
    JaxOption,
    JsonOption,
    PoolOption,
    PrecisionOption,
    PythonOption,
    SiteOption,
    StateOption,
    TorchOption,
    UseCaseOption,
    WorkloadArgument,
)
from flows.cli.printing import OUT, print_json, print_rows
from flows.cli.why import print_bottlenecks


def waterfall(
    workload: WorkloadArgument,
    case: CaseOption = None,
    use_case: UseCaseOption = None,
    batch: BatchOption = None,
    precision: PrecisionOption = None,
    torch: TorchOption = "torch",
    jax: JaxOption = "jax",
    starts: Annotated[
        int, typer.Option("--starts", metavar="COUNT", help="Start the contenders this many times.")
    ] = MIN_STARTS,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="COUNT", help="Measure this many rounds per start.")
    ] = 10,
    device: DeviceOption = "cpu",
    site: SiteOption = "local",
    pool: PoolOption = None,
    campaign: CampaignOption = None,
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Measure what each step from eager PyTorch to CUDA graphs gains, and compare with JAX."""
    asked = WaterfallRequest(
        workload=workload,
        case_filter=CaseFilter(case=case, use_case=use_case, batch=batch, precision=precision),
        torch=torch,
        jax=jax,
        starts=starts,
        rounds=rounds,
        device=device,
    )
    steps = list_steps(asked)
    drafted = draft_waterfall(asked, steps, site=site, campaign=campaign, python=python)
    opened = open_state(state)
    outcome = measure_plan(drafted, opened, pool)

    engine, duel = open_database(opened.database_url), find_duel(drafted)
    arms = name_arms(steps, duel)
    found = read_waterfall(engine, drafted.campaign, duel.duel_run, arms)
    for arm, step in zip(found["arms"], steps, strict=True):
        arm["reason"] = step.left_out or arm["reason"]
    of_campaign = list_bottlenecks(engine, drafted.campaign)
    found["why"] = [row for row in of_campaign if row["duel_run"] == duel.duel_run]
    page = publish_waterfall(found, opened.site / drafted.campaign)
    publish_campaign(opened, drafted.campaign)  # once more: now there is a page to link to
    kept = {key: outcome[key] for key in ("campaign", "failures")}
    if as_json:
        print_json({**kept, "page": str(page), "words": describe_total(found), **found})
    else:
        print_waterfall(found)
        OUT.print(f"Page: {page}", markup=False, soft_wrap=True, highlight=False)
    if outcome["failures"]:
        raise typer.Exit(1)


def print_waterfall(found: Mapping[str, Any]) -> None:
    """Each arm with what it gains, the whole in one sentence, and why no step is shorter."""
    columns = ("arm", "step", "against the one before", "verdict", "starts", "note")
    title = f"{found['case']} on {found['device_model']}: from torch eager to JAX"
    print_rows(list_arms(found), columns, title=title)
    OUT.print(describe_total(found), markup=False, soft_wrap=True, highlight=False)
    print_bottlenecks(found["why"])

"""The command `deadheat waterfall`: what torch gains step by step, and where JAX stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from benchcore.comparison import MIN_STARTS, Wanted
from benchcore.state import open_state
from benchcore.waterfall import WaterfallRequest, draft_waterfall, find_duel, list_steps, name_arms
from dashboards.campaign import publish_campaign
from dashboards.waterfall import list_arms, publish_waterfall, say_whole
from flows.commands.options import (
    STATE,
    BatchOption,
    CampaignOption,
    CaseOption,
    DeviceOption,
    JsonOption,
    PoolOption,
    PrecisionOption,
    PythonOption,
    SiteOption,
    StateOption,
    UseCaseOption,
)
from flows.commands.why import print_bottlenecks
from flows.printing import OUT, print_json, print_rows
from flows.running import measure_plan, run_flow


def waterfall(
    workload: Annotated[str, typer.Argument(help="Name of the workload.")],
    case: CaseOption = None,
    use_case: UseCaseOption = None,
    batch: BatchOption = None,
    precision: PrecisionOption = None,
    torch: Annotated[str, typer.Option("--torch", help="Version of PyTorch.")] = "torch",
    jax: Annotated[str, typer.Option("--jax", help="Version of JAX: jax==0.10.1, ...")] = "jax",
    starts: Annotated[int, typer.Option("--starts", help="Fresh processes.")] = MIN_STARTS,
    rounds: Annotated[int, typer.Option("--rounds", help="In each start.")] = 10,
    device: DeviceOption = "cpu",
    site: SiteOption = "local",
    pool: PoolOption = None,
    campaign: CampaignOption = None,
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Tell what torch gains from eager to channels_last, compile and graphs, beside JAX."""
    asked = WaterfallRequest(
        workload=workload,
        wanted=Wanted(case=case, use_case=use_case, batch=batch, precision=precision),
        torch=torch,
        jax=jax,
        starts=starts,
        rounds=rounds,
        device=device,
    )
    steps = list_steps(asked)
    drafted = draft_waterfall(asked, steps, site=site, campaign=campaign, python=python)
    opened = open_state(state)
    outcome = run_flow(measure_plan(drafted, opened, pool), opened, drafted.campaign)

    from benchcore.store.bottlenecks import list_bottlenecks
    from benchcore.store.database import open_database
    from benchcore.store.waterfalls import read_waterfall

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
        print_json({**kept, "page": str(page), "words": say_whole(found), **found})
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
    OUT.print(say_whole(found), markup=False, soft_wrap=True, highlight=False)
    print_bottlenecks(found["why"])

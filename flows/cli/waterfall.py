"""The command `deadheat waterfall`: what each setting of torch gains, compared with JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from benchcore.experiments.compare import MIN_STARTS
from benchcore.experiments.waterfall import (
    WaterfallRequest,
    conclude_waterfall,
    draft_waterfall,
    list_steps,
)
from benchcore.planning.requests import ANY_CASE, USUAL, CaseFilter, Placement
from benchcore.state import open_state
from dashboards.publish import publish_study
from dashboards.studies.waterfall_page import describe_total, list_arms, render_waterfall
from flows.cli import options
from flows.cli.bottlenecks import print_bottlenecks
from flows.cli.in_process import measure_plan
from flows.cli.options import expand_groups
from flows.cli.printing import print_json, print_line, print_rows


@expand_groups
def waterfall(
    workload: options.Workload,
    case: CaseFilter = ANY_CASE,
    torch: options.Torch = "torch",
    jax: options.Jax = "jax",
    starts: options.Starts = MIN_STARTS,
    compilations: options.Compilations = 3,
    rounds: options.Rounds = 10,
    device: options.Device = "cpu",
    placement: Placement = USUAL,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Measure what each PyTorch setting gains, from eager to CUDA graphs, against JAX."""
    request = WaterfallRequest(
        workload=workload,
        case_filter=case,
        torch=torch,
        jax=jax,
        starts=starts,
        compilations=compilations,
        rounds=rounds,
        device=device,
    )
    steps = list_steps(request)
    drafted = draft_waterfall(request, steps, placement)
    opened = open_state(state)
    outcome = measure_plan(drafted, opened, placement.pool)
    found = conclude_waterfall(drafted, steps, opened)
    page = publish_study(opened, drafted.campaign, "waterfall.html", render_waterfall(found))
    if as_json:
        kept = {key: outcome[key] for key in ("campaign", "failures")}
        print_json({**kept, "page": str(page), "summary": describe_total(found), **found})
    else:
        _print(found)
        print_line(f"Page: {page}")
    if outcome["failures"]:
        raise typer.Exit(1)


def _print(found: Mapping[str, Any]) -> None:
    """Each arm with what it gains, the whole in one sentence, and why no step is shorter."""
    columns = ("arm", "step", "against the one before", "verdict", "starts", "note")
    title = f"{found['case']} on {found['device_model']}: from torch eager to JAX"
    print_rows(list_arms(found), columns, title=title)
    print_line(describe_total(found))
    print_bottlenecks(found["why"])

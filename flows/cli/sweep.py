"""The command `deadheat sweep`: a comparison over several batch sizes, device counts, model sizes
or numbers of concurrent models."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from benchcore.errors import UserError
from benchcore.experiments.sweep import (
    SweepRequest,
    Varied,
    conclude_sweep,
    draft_sweep,
    is_measured,
    list_rows,
    read_values,
)
from benchcore.planning.requests import USUAL, CaseFilter, Placement
from benchcore.state import open_state
from dashboards.publish import publish_study
from dashboards.studies.sweep_page import (
    describe_crossing,
    list_points,
    render_sweep,
    split_columns,
    title_sweep,
)
from flows.cli import options
from flows.cli.in_process import measure_plan
from flows.cli.options import expand_groups, option
from flows.cli.printing import print_json, print_line, print_rows

_BATCHES = "Measure the cases with these batch sizes: 1,8,32,128."
_DEVICES = "Measure the cases on these numbers of devices: 1,2,4."
_SIZES = "Measure the cases of these model sizes: base,large."
_MODELS = "Measure the cases with these numbers of concurrent models: 1,8,64."
_CASE = "Choose one of the cases; the others differ from it only in what varies."
_CSV = "Write the curve as CSV into this file (default: none)."
_BUDGET = "Add no starts to a value after this long."
_STARTS = "Start both sides this many times per value."


@expand_groups
def sweep(
    workload: options.Workload,
    a: options.SideA,
    b: options.SideB,
    case: Annotated[str | None, option("--case", "NAME", _CASE)] = None,
    use_case: options.UseCase = None,
    precision: options.Precision = None,
    batch: options.Batch = None,
    batches: Annotated[str | None, option("--batches", "LIST", _BATCHES)] = None,
    devices: Annotated[str | None, option("--devices", "LIST", _DEVICES)] = None,
    sizes: Annotated[str | None, option("--sizes", "LIST", _SIZES)] = None,
    models: Annotated[str | None, option("--models", "LIST", _MODELS)] = None,
    a_set: options.SetA = None,
    b_set: options.SetB = None,
    starts: Annotated[int, option("--starts", "COUNT", _STARTS)] = 3,
    budget: Annotated[float, option("--budget", "SECONDS", _BUDGET)] = 60.0,
    device: options.Device = "cpu",
    csv_file: Annotated[Path | None, option("--csv", "FILE", _CSV)] = None,
    placement: Placement = USUAL,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Compare two sides over several batch sizes, device counts, model sizes or numbers of
    concurrent models.

    Prints and publishes a curve. A side that fails at a value, such as out of memory, has its
    status there. Exit code 1 if no value was measured on both sides.
    """
    lists: dict[Varied, str | None] = {
        "batch": batches,
        "devices": devices,
        "size": sizes,
        "models": models,
    }
    varied, values = _read_values(lists)
    request = SweepRequest(
        workload=workload,
        case_filter=CaseFilter(case=case, use_case=use_case, batch=batch, precision=precision),
        varied=varied,
        values=values,
        a=(a, *(a_set or ())),
        b=(b, *(b_set or ())),
        starts=starts,
        budget_s=budget,
        device=device,
    )
    if csv_file is not None and not csv_file.absolute().parent.is_dir():
        raise UserError(
            f"wanted to write {str(csv_file)!r}, but its folder does not exist; choose another "
            "file with --csv"
        )
    opened = open_state(state)
    drafted = draft_sweep(request, placement, opened)
    outcome = measure_plan(drafted, opened, placement.pool)
    found = conclude_sweep(drafted, request, opened, outcome["ratios"])
    page = publish_study(opened, drafted.campaign, "sweep.html", render_sweep(found))
    if csv_file is not None:
        _write_csv(found, csv_file)
    if as_json:
        print_json({"campaign": drafted.campaign, "page": str(page), **found})
    else:
        _print(found, page)
    if not is_measured(found):
        raise typer.Exit(1)


def _read_values(lists: Mapping[Varied, str | None]) -> tuple[Varied, tuple[int | str, ...]]:
    """What varies, and its values."""
    given: list[tuple[Varied, str]] = [
        (varied, text) for varied, text in lists.items() if text is not None
    ]
    if len(given) != 1:
        raise UserError(
            f"wanted one of --batches, --devices, --sizes and --models, got {len(given)}; "
            "write for example --batches 1,8,32"
        )
    ((varied, text),) = given
    return varied, read_values(varied, [part.strip() for part in text.split(",")])


def _write_csv(found: Mapping[str, Any], path: Path) -> None:
    rows = list_rows(found)
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise UserError(
            f"wanted to write {str(path)!r}, but {error}; choose another file with --csv"
        ) from error


def _print(found: Mapping[str, Any], page: Path) -> None:
    points = list_points(found)
    columns, costs = split_columns(found["varied"], points)
    print_rows(points, columns, title=title_sweep(found))
    print_rows(points, costs, title="What compiling and new shapes cost")
    if found["crossing"] is not None:
        print_line(describe_crossing(found))
    for point in points:
        if point["note"]:
            print_line(f"{point[found['varied']]} does not count: {point['note']}")
    print_line(f"Page: {page}")

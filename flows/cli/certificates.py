"""The command `deadheat certificates`: what each release changed, and what it left unchanged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from benchcore.names import format_ends, format_percent, format_signed
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.metrics import TRACKED, find_tracked
from benchcore.store.records import case_of
from benchcore.store.reports.certificates import list_certificates
from flows.cli import options
from flows.cli.options import option
from flows.cli.printing import print_json, print_line, print_rows

_BOUND = "Count a change below this share as none: 0.01 is 1 % (default: the metric's own)."
_SHOWN_BOUND = 0.0005
"""Smaller ones, of counts, are not shown: they would be 0.0 %."""


def certificates(
    metric: options.Metric = None,
    bound: Annotated[float | None, option("--bound", "RATIO", _BOUND, min=0.001, max=0.5)] = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """List per case and metric what each release changed.

    A row is better, worse, unchanged within the bound (by two one-sided tests), or not shown.
    """
    metrics = TRACKED if metric is None else (find_tracked(metric).key,)
    engine = open_database(open_state(state).database_url)
    rows = list_certificates(engine, metrics, bound=bound)
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_line(
            "No certificates yet: no duel that counts compares two versions. Run "
            "`deadheat nightly`, or `deadheat backfill jax`."
        )
        return
    for title, of_one in _group(rows).items():
        print_rows(of_one, list(of_one[0]), title=title)


def _group(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, str | None]]]:
    """A table for each release and device, in the order of the rows."""
    tables = defaultdict[str, list[dict[str, str | None]]](list)
    for row in rows:
        versions = f"{row['a_framework']} {row['b_version']} to {row['a_version']}"
        tables[f"{versions} on {row['device_model']}"].append(_format(row))
    return tables


def _format(row: Mapping[str, Any]) -> dict[str, str | None]:
    """A row of the table."""
    certificate = row["certificate"]
    if certificate == "unchanged" and row["bound"] >= _SHOWN_BOUND:
        certificate = f"unchanged within ±{format_percent(row['bound'], 1)}"
    return {
        "case": case_of(row),
        "arm": row["a_arm"],
        "metric": row["noun"],
        "certificate": certificate,
        "better by": None if row["change"] is None else format_signed(row["change"]),
        "95 %": None if row["low"] is None else format_ends(row["low"], row["high"]),
        "samples": str(row["num_samples"]),
    }

"""What each contender's step took, as tables on the console: one a case, a column a contender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from benchcore.store.metrics import METRICS
from dashboards.formatting import format_metric
from dashboards.tables import describe_unsteady
from flows.cli.printing import print_rows


def print_costs(contenders: Sequence[Mapping[str, Any]]) -> None:
    """The rows of `benchcore.store.reports.campaign.list_contenders`, with a remark where a
    contender was not steady when its clock began."""
    for case, of_case in groupby(contenders, key=lambda row: row["case"]):
        rows = list(of_case)
        names = [row["name"] for row in rows]
        table = [
            {
                "": metric.title.lower(),
                **{row["name"]: format_metric(metric, row[metric.key]) for row in rows},
            }
            for metric in METRICS
        ]
        remarks = {row["name"]: describe_unsteady(row) for row in rows}
        if any(remarks.values()):
            table.append({"": "when its clock began", **remarks})
        print_rows(table, ("", *names), title=f"{case}: what a step took")

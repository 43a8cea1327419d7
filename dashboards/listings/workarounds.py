"""Format workarounds for the page and the console: whether they are needed, and their cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchcore.names import arm_label
from dashboards.formatting import format_speedup

_HIGHEST = {None: "", "ok": "; runs with precision highest, which is a different case"}


def describe_workarounds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The rows of `benchcore.store.reports.workarounds.list_workarounds`, formatted."""
    return [
        {
            "case": _describe_case(row),
            "still needed": row["still_needed"],
            "workaround": _describe_workaround(row),
            "cost": _describe_cost(row),
            "to report upstream": f"{row['hlo']}: {row['hlo_command']}"
            if row["hlo"]
            else "no HLO was stored",
        }
        for row in rows
    ]


def _describe_case(row: Mapping[str, Any]) -> str:
    return ", ".join(filter(None, (row["case"], f"JAX {arm_label(row['arm'])}".strip())))


def _describe_workaround(row: Mapping[str, Any]) -> str:
    otherwise = "; also fails with precision highest, which is a different case"
    return (row["workaround"] or "nothing") + _HIGHEST.get(row["highest"], otherwise)


def _describe_cost(row: Mapping[str, Any]) -> str:
    cost = row["cost"]
    if cost:
        logs = [math.log(cost[key]) for key in ("factor", "low", "high")]
        return f"{format_speedup(*logs)} the time of {cost['case']} ({cost['version']})"
    if row["cost_command"]:
        return f"not measured; run {row['cost_command']}"
    if row["workaround"] and "plain retry" not in row["workaround"]:
        return "not measured: this contender ran nothing without a workaround"
    return "none: no flag is set"

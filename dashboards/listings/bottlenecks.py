"""The tables of bottlenecks and of compiled programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.formatting import (
    format_share,
    is_missing,
    name_contender,
    one_line,
)

Row = dict[str, str]
_VERDICTS = {True: ("same", "same program"), False: ("different", "another program")}


def list_bottlenecks(bottlenecks: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One row per contender: class, advice and reason, with the shares they rest on."""
    keys = ("workload", "case_name", "framework", "name")
    rows = sorted(bottlenecks, key=lambda row: tuple(str(row[key]) for key in keys))
    return [{**name_contender(row), **describe_bottleneck(row)} for row in rows]


def describe_bottleneck(row: Mapping[str, Any]) -> Row:
    """A contender's class, advice and reason, with the shares they rest on. The reason is left out
    where the shares already show it."""
    decided = row["bottleneck"] in ("compute", "memory")
    return {
        "name": str(row["name"]),
        "bottleneck": str(row["bottleneck"]),
        "advice": one_line(row["advice"], missing=""),
        "reason": "" if decided else one_line(row["reason"], missing=""),
        "intensity": _format_intensity(row),
        "compute": format_share(row["compute_share"], 1.0),
        "bandwidth": format_share(row["bandwidth_share"], 1.0),
        "outside": format_share(row["host_share"], 1.0),
    }


def list_programs(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> list[Row]:
    """Whether each pair ran the same program, and what differs; empty if no program was stored.
    `names` are what readers see for contenders."""
    if all(row["same"] is None for row in rows):
        return []
    listed = []
    for row in rows:
        kind, verdict = _VERDICTS.get(row["same"], ("unknown", "unknown"))
        difference = str(row["summary"]).removeprefix(f"{verdict}: ").removeprefix(f"{verdict} ")
        pair = " against ".join(names.get(row[side], str(row[side])) for side in ("a", "b"))
        named = {"case": str(row["case"]), "pair": pair}
        listed.append({**named, "kind": kind, "verdict": verdict, "difference": difference})
    return listed


def _format_intensity(row: Mapping[str, Any]) -> str:
    """`91.3 (20)`: FLOP per byte, and the ridge where the device's two ceilings meet."""
    if is_missing(row["intensity"]):
        return "no arithmetic"
    ridge = "" if is_missing(row["ridge"]) else f" ({row['ridge']:.3g})"
    return f"{row['intensity']:.3g}{ridge}"

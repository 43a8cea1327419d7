"""Rows of tables as formatted text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from benchcore.names import FRAMEWORK_NAMES
from benchcore.store.metrics import ON_PAGE
from benchcore.verdict.duel.ratios import find_slow_side
from dashboards.formatting import (
    NOT_MEASURED,
    case_label,
    format_average,
    format_bytes,
    format_count,
    format_metric,
    format_ns,
    format_rate,
    format_relative,
    format_seconds,
    format_share,
    format_speedup,
    is_missing,
    is_single_start,
    name_contender,
    one_line,
    side_label,
)
from dashboards.frames import to_rows
from dashboards.website.names import order_words

Row = dict[str, str]
Found = pd.DataFrame | Sequence[Mapping[str, Any]]
"""A frame, or rows of one."""
_VERDICTS = ("same", "different", "unknown")


def describe_ratio_row(row: dict[str, Any]) -> Row:
    """A pair as text: sides, speedup, verdict, reason, settings and starts. What does not count is
    no ratio, and so has no number."""
    verdict = row["verdict"] if row["verdict"] in _VERDICTS else "unknown"
    counts = row["counts"] is True or row["counts"] == 1
    speedup = format_speedup(row["log_ratio"], row["low"], row["high"])
    return {
        "case": case_label(row),
        "a": side_label(row, "a"),
        "b": side_label(row, "b"),
        "speedup": speedup if counts else "void",
        "verdict": verdict,
        "direction": _direction(row) if verdict == "different" else "",
        "reason": one_line(row["reason"], missing=""),
        "parity": _describe_parity(row),
        "starts": _describe_scope(row),
        "counts": "counts" if counts else "does not count",
    }


def _describe_parity(row: dict[str, Any]) -> str:
    """Whether the sides had the same settings, or the differences: `not a fair pair: compiled yes
    here, no there`."""
    if row["fair"] is None:
        return "parity is unknown"
    listed = [f"{name} {a} here, {b} there" for name, a, b in row["differences"]]
    if row["violations"] and not listed:  # equal, but not as the arms requested
        listed = row["violations"]
    if not listed:
        return "same settings"
    verdict = "not a fair pair"
    if row["violations"] or row["fair"]:
        verdict = "void" if row["violations"] else "same settings except"
    return f"{verdict}: {'; '.join(listed)}"


def _describe_scope(row: dict[str, Any]) -> str:
    """`5 (this node, over 3 compilations)`; `1 (single start, no interval)`."""
    starts = one_line(row["num_starts"])
    if starts == "0":
        return "0"
    return f"{starts} ({'single start, no interval' if is_single_start(row) else row['scope']})"


def _direction(row: dict[str, Any]) -> str:
    slower = find_slow_side(row["workload"], row["low"], row["high"])
    end = f", {side_label(row, slower)} slow" if slower else ""
    return f"{_faster(row)}{end}"


def _faster(row: dict[str, Any]) -> str:
    if is_missing(row["log_ratio"]):
        return ""
    if row["kind"] == "cross_version":
        return "newer faster" if row["log_ratio"] > 0 else "older faster"
    if row["kind"] == "cross_setting":
        return f"{side_label(row, 'a' if row['log_ratio'] > 0 else 'b')} faster"
    faster = row["a_framework"] if row["log_ratio"] > 0 else row["b_framework"]
    return f"{FRAMEWORK_NAMES.get(faster, faster)} faster"


def describe_failure(row: dict[str, Any]) -> Row:
    """A contender's status with cause, stage and reason."""
    return {
        **name_contender(row),
        "status": str(row["status"]),
        "cause": one_line(row["cause"], missing="not recorded").replace("_", " "),
        "stage": one_line(row["stage"], missing="not recorded"),
        "reason": one_line(row["reason"], missing="no reason recorded"),
    }


def list_contenders(contenders: Found) -> list[Row]:
    """Step times and costs, case by case, those that are not ok first within the case."""
    return [
        {
            **name_contender(row),
            "role": one_line(row["role"], missing=""),
            "step": format_ns(row["median_step_ns"]),
            "degraded": _degraded(row),
            "unsteady": describe_unsteady(row),
            "rate": format_rate(row["items_per_s"]),
            "compile": _compilation(row),
            "import": format_seconds(row["import_s"]),
            "ceilings": _ceilings(row),
            "status": str(row["status"]),
            "build": one_line(row["build"], missing="not recorded"),
            "python": one_line(row["python_version"], missing="not recorded"),
        }
        for row in sorted(to_rows(contenders), key=_failed_first)
    ]


def _by_case(row: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("workload", "case_name", "framework", "role", "name")
    return tuple(str(row.get(key, "")) for key in keys)


def _failed_first(row: Mapping[str, Any]) -> tuple[Any, ...]:
    case, rest = _by_case(row)[:2], _by_case(row)[2:]
    return *case, row["status"] == "ok", *rest


def describe_unsteady(row: Mapping[str, Any]) -> str:
    """`not steady in 1 of 3 starts`: their warm-up ended at its time limit, while its blocks still
    differed by more than 2 %. This voids nothing: rounds pair blocks that drift together."""
    if is_missing(row["num_unsteady"]) or row["num_unsteady"] == 0:
        return ""
    return f"not steady in {int(row['num_unsteady'])} of {int(row['num_starts'])} starts"


def _degraded(row: dict[str, Any]) -> str:
    """`2 of 30`: how many blocks others disturbed, which take no part in step times and ratios."""
    if is_missing(row["num_degraded"]):
        return NOT_MEASURED
    return f"{int(row['num_degraded'])} of {int(row['num_blocks'])}"


def _ceilings(row: dict[str, Any]) -> str:
    """What share of the measured compute and bandwidth ceilings the fastest start reached."""
    shares = [("compute", row["compute_share"]), ("bandwidth", row["bandwidth_share"])]
    known = [
        f"{name} {format_share(share, 1.0)}" for name, share in shares if not is_missing(share)
    ]
    return ", ".join(known) or "no ceiling measured"


def measured_costs(rows: list[Row]) -> dict[str, str]:
    """The headings of the metrics that any row has a value of: a counter that a device lacks has
    no column."""
    return {
        metric.key: metric.heading
        for metric in ON_PAGE
        if any(row[metric.key] != NOT_MEASURED for row in rows)
    }


def list_costs(contenders: Found) -> list[Row]:
    """The page's metrics of each contender that ran."""
    ran = [row for row in to_rows(contenders) if row["num_blocks"] > 0]
    return [
        {
            **name_contender(row),
            **{metric.key: format_metric(metric, row[metric.key]) for metric in ON_PAGE},
        }
        for row in sorted(ran, key=_by_case)
    ]


def list_profiles(profiles: Found) -> list[Row]:
    """Where the time of a step goes, as the framework's profiler saw it."""
    return [
        {
            **name_contender(row),
            "kernels": format_ns(row["kernel_ns"]),
            "dispatch": format_ns(row["dispatch_ns"]),
            "python_calls": format_average(row["python_calls"]),
            "num_kernels": format_average(row["num_kernels"]),
            "waits": format_average(row["host_syncs"]),
            "copied": format_bytes(row["copied_bytes"]),
            "longest": one_line(row["longest"], missing="not recorded"),
        }
        for row in sorted(to_rows(profiles), key=_by_case)
    ]


def _compilation(row: dict[str, Any]) -> str:
    """`2.1 s, then 0.3 s`: trace, lower and compile with caches empty, and with caches filled."""
    cold, warm = row["cold_compile_s"], row["warm_compile_s"]
    if is_missing(cold) and is_missing(warm):
        return "none: eager" if str(row["arm"]).endswith("eager") else NOT_MEASURED
    return f"{format_seconds(cold)}, then {format_seconds(warm)}"


Names = Mapping[str, str]
"""How a page calls the contenders of a duel, by their own names."""


def list_failed_checks(marks: Found, names: Names) -> list[Row]:
    """The failed checks with their reasons. What several pairs of a duel failed for the same reason
    is listed once, with these pairs."""
    found = dict[tuple[Any, ...], list[dict[str, Any]]]()
    for row in to_rows(marks):
        same = (row["duel_run"], *(str(row[key]) for key in _SAME_CHECK))
        found.setdefault(same, []).append(row)
    return [
        {
            "case": case_label(rows[0]),
            "contender": "; ".join(dict.fromkeys(_name_concerned(each, names) for each in rows)),
            "suite": str(rows[0]["suite"]),
            "expectation": str(rows[0]["expectation"]),
            "reason": one_line(rows[0]["reason"], missing="no reason recorded"),
            "effect": "does not count" if rows[0]["severity"] == "critical" else "warning",
        }
        for rows in found.values()
    ]


_SAME_CHECK = ("suite", "expectation", "reason", "severity")


def _name_concerned(row: Mapping[str, Any], names: Names) -> str:
    known = [str(row[key]) for key in ("contender", "other") if not is_missing(row[key])]
    return " against ".join(names.get(each, each) for each in known) or "the whole duel"


def list_equivalence(equivalence: Found, names: Names) -> list[Row]:
    """The differences of both sides' results, disagreement first."""
    rows = [
        {
            "case": case_label(row),
            "pair": " against ".join(names.get(row[side], row[side]) for side in "ab"),
            "quantity": str(row["quantity"]),
            "max_relative": format_relative(row["max_relative"]),
            "l2_relative": format_relative(row["l2_relative"]),
            "tolerance": format_relative(row["tolerance"]),
            "agrees": _agreement(row["agrees"]),
        }
        for row in to_rows(equivalence)
    ]
    return sorted(rows, key=lambda row: (row["agrees"] == "agrees", row["case"], row["pair"]))


def _agreement(agrees: object) -> str:
    if is_missing(agrees):
        return "not compared"
    return "agrees" if agrees else "differs"


def list_environments(contenders: Found) -> list[Row]:
    """The environments of the campaign, once each, with version 0.9 before 0.10."""
    columns = ["framework", "version", "python_version", "build", "environment_key"]
    found = {tuple(str(row[key]) for key in columns): row for row in to_rows(contenders)}
    unique = [found[key] for key in sorted(found, key=lambda key: order_words(*key))]
    return [
        {
            "framework": FRAMEWORK_NAMES.get(row["framework"], str(row["framework"])),
            "version": one_line(row["version"], missing="not recorded"),
            "python": one_line(row["python_version"], missing="not recorded"),
            "build": one_line(row["build"], missing="not recorded"),
            "key": one_line(row["environment_key"], missing="not recorded"),
        }
        for row in unique
    ]


_ENDS = {
    "target": "when the interval of every pair was narrow enough",
    "budget": "when its time was spent",
    "max_starts": "with the largest number of starts",
    "no_pair": "with the fewest starts, as they have no pair",
}


def describe_length(contenders: Found) -> str:
    """What ended the duels: `1 duel ended when its time was spent`."""
    first = {row["duel_run"]: row["stopped_by"] for row in reversed(to_rows(contenders))}
    ends = list(first.values())
    counted = [(ends.count(end), how) for end, how in _ENDS.items()]
    listed = [f"{format_count(count, 'duel')} ended {how}" for count, how in counted if count]
    return "; ".join(listed) or "a fixed number of starts"


def describe_weights(contenders: Found) -> str:
    """Seeded ones, and those of each checkpoint, whose first digits end its case's name."""
    ends = dict[str, str]()
    for row in to_rows(contenders):
        if not is_missing(row["checkpoint"]):
            ends.setdefault(row["checkpoint"], row["case_name"])
    listed = [f"{case}: of the file with SHA-256 {each}" for each, case in ends.items()]
    return "; ".join([*listed, *(["all others: seeded"] if listed else ["seeded"])])


def describe_host(host: Mapping[str, object]) -> str:
    """CPU, how many, memory, system: in words, as far as they are known."""
    memory = host.get("memory_bytes")
    parts = (
        host.get("cpu_model"),
        f"{host['cpus']} CPUs" if "cpus" in host else None,
        f"{float(str(memory)) / 2**30:.3g} GiB" if memory else None,
        host.get("system"),
    )
    return ", ".join(str(part) for part in parts if part)

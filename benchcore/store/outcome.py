"""What came of a campaign, in rows that people and programs read: judged, and listed."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from sqlalchemy import Engine

from benchcore.store.frames import contender_frame, profile_frame, ratio_frame
from benchcore.store.judging import judge_campaign
from benchcore.store.trials import without_trials
from benchcore.verdict.outliers import find_slower
from benchcore.verdict.ratios import judge_nodes
from benchcore.verdict.where_time import StepProfile

_COPIED = (
    *("kind", "a", "b", "num_starts", "verdict", "reason", "scope", "duel_run"),
    *("fair", "differences", "violations"),
)
_SAME_DUEL = ["duel_hash", "method", "device_fingerprint", "a", "b"]
_MEASURED = (
    *("median_step_ns", "latency_p50_ns", "latency_p95_ns", "latency_p99_ns", "latency_mean_ns"),
    *("latency_sd_ns", "latency_min_ns", "latency_max_ns", "latency_samples", "host_boundness"),
    *("planned_bytes", "allocator_peak_bytes", "process_peak_bytes", "process_baseline_bytes"),
    *(
        "num_starts",
        "num_unsteady",
        "gross_mj",
        "net_mj",
        "limit_share",
        "items_per_s",
        "cold_compile_s",
        "warm_compile_s",
    ),
)


def judge_and_list(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """Judge every duel of a campaign again; its ratios as `list_ratios` gives them."""
    judge_campaign(engine, campaign)
    return list_ratios(engine, campaign)


def list_ratios(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """A campaign's ratios: `speedup` is how many times as fast a is as b, `low` to `high` its
    95 % interval; `outlier` names the side of a single operation that takes a multiple."""
    frame = ratio_frame(engine, campaign)
    return [_describe(row) for row in frame.to_dict("records")]


def list_device_ratios(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """What holds for a device model: the campaign's pairs that count on two nodes of it or more.

    The same duel (by its hash, method and device) may have run on the other nodes in any campaign;
    of each node its newest run that counts is one sample.
    """
    frame = ratio_frame(engine)
    counting = frame.loc[frame["counts"]]
    found = []
    for _, rows in counting.groupby(_SAME_DUEL, sort=False):
        of_nodes = rows.groupby("node", sort=False).tail(1)
        if len(of_nodes) > 1 and campaign in set(rows["campaign"]):
            finding = judge_nodes(list(of_nodes["log_ratio"]))
            last = of_nodes.to_dict("records")[-1]
            found.append(
                {
                    **_name_ratio(last | dataclasses.asdict(finding)),
                    "verdict": finding.verdict,
                    "reason": finding.reason,
                    "num_nodes": len(of_nodes),
                    "scope": "this device model",
                    "device": last["device_model"],
                }
            )
    return found


def list_failures(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """A campaign's contenders that did not end well, each with its stage and reason."""
    frame = contender_frame(engine, campaign)
    return [
        {
            "case": _name_case(row),
            **{key: row[key] for key in ("name", "status", "cause", "stage", "reason")},
        }
        for row in frame.loc[frame["status"] != "ok"].to_dict("records")
    ]


def list_contenders(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """What each of a campaign's contenders took: a step's time, latency, memory in its columns,
    energy, and its share of what the device allows, as `benchcore.store.frames.contender_frame`
    has them; None = not measured. Trials of our verdicts are not among them."""
    return [
        {
            "case": _name_case(row),
            **{key: row[key] for key in ("name", "status")},
            **{key: None if math.isnan(row[key]) else row[key] for key in _MEASURED},
        }
        for row in without_trials(contender_frame(engine, campaign)).to_dict("records")
    ]


def list_profiles(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """Where the time of a step goes, of each contender that was profiled; None = not known."""
    columns = [each.name for each in dataclasses.fields(StepProfile)]
    return [
        {
            "case": _name_case(row),
            **{key: row[key] for key in ("name", "longest")},
            **{key: None if math.isnan(row[key]) else row[key] for key in columns},
        }
        for row in profile_frame(engine, campaign).to_dict("records")
    ]


def _describe(row: dict[str, Any]) -> dict[str, Any]:
    slower = find_slower(row["workload"], row["low"], row["high"]) if row["counts"] else None
    return {
        **_name_ratio(row),
        "counts": bool(row["counts"]),
        "outlier": row[slower] if slower else None,
        **{key: row[key] for key in _COPIED},
    }


def _name_ratio(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "case": _name_case(row),
        "pair": f"{row['a']} against {row['b']}",
        "speedup": _factor(row["log_ratio"]),
        "low": _factor(row["low"]),
        "high": _factor(row["high"]),
    }


def _name_case(row: dict[str, Any]) -> str:
    track = "" if row["track"] == "default" else f" ({row['track']})"
    return f"{row['workload']} {row['case_name']}{track}"


def _factor(log_ratio: float | None) -> float | None:
    if log_ratio is None or math.isnan(log_ratio):
        return None
    return round(math.exp(log_ratio), 4)

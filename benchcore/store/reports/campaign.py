"""The results of a campaign, judged, as rows that people and programs read."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session, aliased

from benchcore.protocol import name_case
from benchcore.store.duels import judge_campaign
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.profiles import Profiles, profile_frame, read_profiles
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.frames.reading import Campaigns, drop_calibration_runs, of_campaigns
from benchcore.store.metrics import METRICS
from benchcore.store.models import DuelRun, PairRatio
from benchcore.store.records import case_of
from benchcore.verdict.duel.programs import compare_programs
from benchcore.verdict.duel.ratios import find_slow_side
from benchcore.verdict.duel.step_profile import StepProfile
from benchcore.verdict.starts import judge_nodes

_COPIED = (
    *("kind", "a", "b", "num_starts", "verdict", "reason", "scope", "duel_run"),
    *("fair", "differences", "violations"),
)
_SAME_DUEL = ["duel_hash", "method", "device_fingerprint", "a", "b"]
_MEASURED = (
    *(each.key for each in METRICS),
    *("latency_samples", "num_starts", "num_unsteady", "limit_share"),
)


def judge_and_list(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """Judge every duel of a campaign again; its ratios as `list_ratios` gives them."""
    judge_campaign(engine, campaign)
    return list_ratios(engine, campaign)


def list_ratios(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """A campaign's ratios: `speedup` is how many times as fast a is as b, `low` to `high` its
    95 % interval; `slow_side` names the side of a single operation that takes a multiple."""
    frame = ratio_frame(engine, campaign)
    return [_describe(row) for row in frame.to_dict("records")]


def list_device_ratios(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """What holds for a device model: the campaign's pairs that count on two nodes of it or more.

    The same duel (by its hash, method and device) may have run on the other nodes in any campaign;
    of each node its newest run that counts is one sample.
    """
    frame = ratio_frame(engine, _list_campaigns_of_nodes(engine, campaign))
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


def _list_campaigns_of_nodes(engine: Engine, campaign: str) -> list[str]:
    """Those that ran a duel of the campaign which two nodes or more ran."""
    own, ran = aliased(DuelRun), aliased(DuelRun)
    hashes = select(own.duel_hash).where(own.campaign == campaign)
    several = (
        select(ran.duel_hash)
        .where(ran.duel_hash.in_(hashes))
        .group_by(ran.duel_hash)
        .having(func.count(ran.node.distinct()) > 1)
    )
    query = select(DuelRun.campaign).where(DuelRun.duel_hash.in_(several)).distinct()
    with Session(engine) as session:
        return list(session.scalars(query))


def list_failures(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """A campaign's contenders that did not end well, each with its stage and reason."""
    frame = contender_frame(engine, campaign)
    return [
        {
            "case": case_of(row),
            **{key: row[key] for key in ("name", "status", "cause", "stage", "reason")},
        }
        for row in frame.loc[frame["status"] != "ok"].to_dict("records")
    ]


def list_contenders(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """What a step of each contender cost: the metrics of `contender_frame`, None = not measured.
    Calibration runs are left out."""
    return [
        {
            "case": case_of(row),
            **{key: row[key] for key in ("duel_run", "name", "status")},
            **{key: None if math.isnan(row[key]) else row[key] for key in _MEASURED},
        }
        for row in drop_calibration_runs(contender_frame(engine, campaign)).to_dict("records")
    ]


def list_profiles(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """Where the time of a step goes, of each contender that was profiled; None = not known."""
    columns = [each.name for each in dataclasses.fields(StepProfile)]
    return [
        {
            "case": case_of(row),
            **{key: row[key] for key in ("name", "longest")},
            **{key: None if math.isnan(row[key]) else row[key] for key in columns},
        }
        for row in profile_frame(engine, campaign).to_dict("records")
    ]


def list_programs(
    engine: Engine, campaign: Campaigns, profiles: Profiles | None = None
) -> list[dict[str, Any]]:
    """One row per pair across versions or settings: whether both ran one program, what differs.
    `profiles`: `read_profiles`, if they were read."""
    columns = (PairRatio.duel_run, PairRatio.a, PairRatio.b, DuelRun.workload, DuelRun.case_name)
    query = (
        select(*columns)
        .join(DuelRun, DuelRun.id == PairRatio.duel_run)
        .where(PairRatio.kind != "cross_framework")
        .order_by(DuelRun.started_at, PairRatio.duel_run, PairRatio.a, PairRatio.b)
    )
    profiles = read_profiles(engine, campaign) if profiles is None else profiles
    programs = {contender: found[-1][1]["program"] for contender, found in profiles.items()}
    with engine.connect() as connection:
        pairs = connection.execute(of_campaigns(query, campaign)).all()
    rows = []
    for duel_run, a, b, workload, case in pairs:
        change = compare_programs(programs.get((duel_run, b)), programs.get((duel_run, a)))
        found = {"same": change.same, "summary": change.summary, "duel_run": duel_run}
        pair = {"a": a, "b": b, "pair": f"{a} against {b}"}
        rows.append({"case": name_case(workload, case), **pair, **found})
    return rows


def _describe(row: dict[str, Any]) -> dict[str, Any]:
    slower = find_slow_side(row["workload"], row["low"], row["high"]) if row["counts"] else None
    return {
        **_name_ratio(row),
        "counts": bool(row["counts"]),
        "slow_side": row[slower] if slower else None,
        **{key: row[key] for key in _COPIED},
    }


def _name_ratio(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "case": case_of(row),
        "pair": f"{row['a']} against {row['b']}",
        "speedup": _factor(row["log_ratio"]),
        "low": _factor(row["low"]),
        "high": _factor(row["high"]),
    }


def _factor(log_ratio: float | None) -> float | None:
    if log_ratio is None or math.isnan(log_ratio):
        return None
    return round(math.exp(log_ratio), 4)

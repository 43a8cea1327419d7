"""The content of a campaign's run of Weights & Biases: config, speedups, tables and documents."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchcore.errors import UserError
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import PROFILES
from benchcore.running.plans import load_campaign
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.events import list_events
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import duel_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.records import case_of
from benchcore.store.reports.campaign import list_contenders, list_failures, list_ratios


def gather_content(state: State, campaign: str) -> dict[str, Any]:
    """The run of a campaign: `id`, `group`, `kind`, `tags`, `config`, `speedups` by case and arms,
    `tables` as columns and rows, and the paths of its `documents`.

    Raises UserError if there is no such campaign, or if the database has no results of it.
    """
    plan, engine = load_campaign(state, campaign), open_database(state.database_url)
    kind = name_kind(plan)
    return {
        "id": campaign,
        "group": plan.profile,
        "kind": kind,
        "tags": list(dict.fromkeys((kind, plan.profile, plan.site))),
        "config": _describe_campaign(engine, plan),
        "speedups": _list_speedups(engine, campaign),
        "tables": _list_tables(engine, campaign),
        "documents": [str(each) for each in sorted((state.spool / campaign).glob("*.json"))],
    }


def name_kind(plan: Plan) -> str:
    """`nightly` for a profile's own campaign, `release` for a new version's, else `ad-hoc`."""
    if plan.profile in PROFILES:
        return "nightly"
    return "release" if plan.profile == "release" else "ad-hoc"


def _describe_campaign(engine: Engine, plan: Plan) -> dict[str, Any]:
    """What a reader needs to compare this run with others: versions, place and device."""
    duels = duel_frame(engine, plan.campaign)
    if duels.empty:
        raise UserError(
            f"wanted results of campaign {plan.campaign!r}, but the database holds none; "
            "run `deadheat ingest`, or measure it"
        )
    first: dict[str, Any] = duels.iloc[0].to_dict()
    return {
        "profile": plan.profile,
        "site": plan.site,
        "node": first["node"],
        "device": first["device_model"],
        "method": int(first["method"]),
        "harness": first["harness_version"],
        "started_at": duels["started_at"].min().isoformat(),
        "versions": {
            request: f"{each.framework} {each.version}" for request, each in plan.releases.items()
        },
        "locks": _list_locks(engine, plan.campaign),
        "notes": list(plan.notes),
    }


def _list_locks(engine: Engine, campaign: str) -> dict[str, str]:
    """The key of each version's environment: the hash of its lock and Python."""
    return {
        f"{row['framework']} {row['version']}": row["environment_key"]
        for row in contender_frame(engine, campaign).to_dict("records")
    }


def _list_speedups(engine: Engine, campaign: str) -> dict[str, float]:
    """By case and arms: how many times as fast JAX is as PyTorch. Only what counts."""
    frame = ratio_frame(engine, campaign)
    counting = frame.loc[frame["counts"].astype(bool) & (frame["kind"] == "cross_framework")]
    return {
        f"JAX speedup/{case_of(row)}, {row['a_arm']} against {row['b_arm']}": math.exp(
            row["log_ratio"]
        )
        for row in counting.to_dict("records")
    }


def _list_tables(engine: Engine, campaign: str) -> dict[str, Any]:
    listed = {
        "ratios": list_ratios(engine, campaign),
        "contenders": list_contenders(engine, campaign),
        "failures": list_failures(engine, campaign),
        "events": list_events(engine),
    }
    return {name: _make_table(rows) for name, rows in listed.items() if rows}


def _make_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of scalars; lists and mappings as JSON."""
    return {
        "columns": list(rows[0]),
        "rows": [[_flatten(each) for each in row.values()] for row in rows],
    }


def _flatten(value: Any) -> Any:
    plain = value is None or isinstance(value, (str, bool, int, float))
    return value if plain else json.dumps(value, default=str)

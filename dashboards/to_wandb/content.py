"""What Weights & Biases gets of a campaign: its run, also while it is measured, and a report."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import pandas as pd

from benchcore import variables
from benchcore.errors import DamagedFileError, UserError
from benchcore.planning.matrix import Plan, PlannedDuel
from benchcore.running.duels import is_measured
from benchcore.running.plans import load_campaign, name_kind
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import list_campaigns
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import duel_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.history.conditions import read_conditions
from benchcore.store.history.events import list_events
from benchcore.store.incoming.packs import unpack
from benchcore.store.records import case_of
from benchcore.store.reports.campaign import list_contenders, list_failures, list_ratios
from benchcore.store.reports.changes import list_changes
from dashboards.figures.pictures import draw_forest
from dashboards.website.campaign.news import describe_change
from dashboards.website.events import is_open, series_address
from dashboards.website.files import WebsiteFiles

_MAX_NIGHTS = 100
"""Earlier nights in the history of a night's run."""
_MAX_OPEN = 20
"""Events and suspicions that the report names."""


def gather_content(state: State, campaign: str) -> dict[str, Any]:
    """The run of a campaign: `id`, `group`, `kind`, `tags`, `notes`, `config`, `at` (its begin);
    `speedups` by case and arms, of this night and of the `history`; `tables` as columns and rows;
    the `forest` chart as SVG, and the paths of its `documents`.

    Raises UserError if there is no such campaign, or if the database has no results of it.
    """
    plan, engine = load_campaign(state, campaign), open_database(state.database_url)
    unpack(state.spool / campaign)  # `deadheat prune` packs the documents of older campaigns
    listed = {
        "ratios": list_ratios(engine, campaign),
        "contenders": list_contenders(engine, campaign),
        "failures": list_failures(engine, campaign),
        "events": list_events(engine),
    }
    return {
        **_describe_run(state, engine, plan),
        "notes": _read_verdict(state, campaign),
        "speedups": _list_speedups(ratio_frame(engine, campaign)),
        "tables": _list_tables(listed),
        "forest": draw_forest(state, campaign),
        "documents": [str(each) for each in sorted((state.spool / campaign).glob("*.json"))],
    }


def gather_progress(state: State, campaign: str) -> dict[str, Any]:
    """The run of a campaign that is still measured, as `gather_content` has it: step times of the
    duels that were ingested, but no ratio, as nothing has been checked."""
    plan, engine = load_campaign(state, campaign), open_database(state.database_url)
    listed = {
        "contenders": list_contenders(engine, campaign),
        "failures": list_failures(engine, campaign),
    }
    done = sum(is_measured(state, plan, duel) for duel in plan.duels)
    return {
        **_describe_run(state, engine, plan),
        "notes": f"Measuring: {done} of {len(plan.duels)} duels. Nothing is checked yet.",
        "speedups": {},
        "tables": _list_tables(listed),
        "forest": None,
        "documents": [],
    }


def gather_report(state: State, campaign: str) -> dict[str, Any] | None:
    """The report of a night's profile: its title, `verdict`, number of pairs that count, open
    changes and links, and which `speedups` have a history. None unless the campaign is the
    newest night of its profile."""
    plan, engine = load_campaign(state, campaign), open_database(state.database_url)
    is_night = name_kind(campaign, plan.profile) == "nightly"
    if not is_night or _list_nights(state, engine, plan.profile)[-1] != campaign:
        return None
    ratios = ratio_frame(engine, campaign)
    first: dict[str, Any] = ratios.iloc[0].to_dict() if len(ratios) else {}
    changes = [each for each in list_changes(engine) if is_open(each)]
    return {
        "title": f"Dead Heat: {plan.profile}",
        "campaign": campaign,
        "group": plan.profile,
        "device": first.get("device_model", ""),
        "verdict": _read_verdict(state, campaign),
        "counted": f"{sum(map(bool, ratios['counts']))} of {len(ratios)} pairs count.",
        "page": _link(f"{campaign}/index.html"),
        "changes": [
            {"text": describe_change(each), "link": _link(series_address(each))}
            for each in sorted(changes, key=lambda each: -abs(math.log(each["ratio"])))[:_MAX_OPEN]
        ],
        "speedups": sorted(_list_speedups(ratios)),
    }


def _describe_run(state: State, engine: Engine, plan: Plan) -> dict[str, Any]:
    kind, config = name_kind(plan.campaign, plan.profile), _describe_campaign(engine, plan)
    return {
        "id": plan.campaign,
        "group": plan.profile,
        "kind": kind,
        "tags": list(dict.fromkeys((kind, plan.profile, plan.site))),
        "config": config,
        "at": datetime.fromisoformat(config["started_at"]).timestamp(),
        "history": _list_history(state, engine, plan) if kind == "nightly" else [],
    }


def _describe_campaign(engine: Engine, plan: Plan) -> dict[str, Any]:
    """What a reader needs to compare this run with others: plan, versions, place and conditions."""
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
        "conditions": _list_conditions(engine, plan.campaign),
        "duels": [_describe_duel(each) for each in plan.duels],
        "notes": list(plan.notes),
        "page": _link(f"{plan.campaign}/index.html"),
    }


def _list_locks(engine: Engine, campaign: str) -> dict[str, str]:
    """The key of each version's environment: the hash of its lock and Python."""
    return {
        f"{row['framework']} {row['version']}": row["environment_key"]
        for row in contender_frame(engine, campaign).to_dict("records")
    }


def _list_conditions(engine: Engine, campaign: str) -> dict[str, str]:
    """Kernel, driver, libraries and others under which it was measured; all values of a condition
    that duels differ in."""
    found = defaultdict[str, set[str]](set)
    for known in read_conditions(engine, campaign).values():
        for name, value in known.items():
            found[name].add(value)
    return {name: ", ".join(sorted(found[name])) for name in sorted(found)}


def _describe_duel(duel: PlannedDuel) -> dict[str, Any]:
    """A planned duel, whether or not it was measured."""
    return {
        "case": duel.title,
        "hash": duel.hash,
        "device": duel.device,
        "seed": duel.seed,
        "contenders": [each.name for each in duel.contenders],
        "limits": asdict(duel.limits),
    }


def _list_history(state: State, engine: Engine, plan: Plan) -> list[dict[str, float]]:
    """The speedups of the nights before this one on its device, oldest first, each with its
    `_timestamp`. They make the run's own charts show the trend."""
    nights = _list_nights(state, engine, plan.profile)
    before = nights[: nights.index(plan.campaign)][-_MAX_NIGHTS:] if plan.campaign in nights else []
    own = duel_frame(engine, plan.campaign)
    frame = ratio_frame(engine, before) if before else pd.DataFrame()
    if frame.empty or own.empty:
        return []
    same = frame.loc[frame["device_fingerprint"] == own.iloc[0]["device_fingerprint"]]
    return [
        {"_timestamp": rows["started_at"].min().timestamp(), **_list_speedups(rows)}
        for _, rows in same.groupby("campaign", sort=False)
    ]


def _list_nights(state: State, engine: Engine, profile: str) -> list[str]:
    """The nights of a profile that have results, oldest first."""
    named = [each for each in list_campaigns(engine) if name_kind(each, profile) == "nightly"]
    return [each for each in named if _find_profile(state, each) == profile]


def _find_profile(state: State, campaign: str) -> str | None:
    """None if its plan is gone or can't be read."""
    try:
        return load_campaign(state, campaign).profile
    except (UserError, DamagedFileError):
        return None


def _list_speedups(frame: pd.DataFrame) -> dict[str, float]:
    """By case and arms: how many times as fast JAX is as PyTorch. Only what counts."""
    counting = frame.loc[frame["counts"].astype(bool) & (frame["kind"] == "cross_framework")]
    return {
        f"JAX speedup/{case_of(row)}, {row['a_arm']} against {row['b_arm']}": math.exp(
            row["log_ratio"]
        )
        for row in counting.to_dict("records")
    }


def _read_verdict(state: State, campaign: str) -> str:
    """The sentence on the campaign's published page; empty if it has none."""
    page = WebsiteFiles(state.website).read(f"campaigns/{campaign}")
    return "" if page is None else str(page["sentence"])


def _link(page: str) -> str | None:
    """The address of a published page; None where the dashboard is served nowhere."""
    served = variables.DASHBOARD_URL.read()
    return f"{served.rstrip('/')}/{page}" if served else None


def _list_tables(listed: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    return {name: _make_table(rows) for name, rows in listed.items() if rows}


def _make_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A table of scalars; lists and mappings as JSON."""
    return {
        "columns": list(rows[0]),
        "rows": [[_flatten(each) for each in row.values()] for row in rows],
    }


def _flatten(value: Any) -> Any:
    plain = value is None or isinstance(value, (str, bool, int, float))
    return value if plain else json.dumps(value, default=str)

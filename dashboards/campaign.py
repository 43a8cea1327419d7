"""Publishes one campaign: its rows from the store, its times from its progress, its page."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from benchcore.campaign import load_campaign, progress_log
from benchcore.errors import UserError
from benchcore.matrix import Plan
from benchcore.progress import ProgressReader
from benchcore.protocol import DEFECT_TRACK
from benchcore.state import State
from benchcore.store.bottlenecks import bottleneck_frame
from benchcore.store.database import open_database
from benchcore.store.epochs import epoch_frame
from benchcore.store.frames import (
    contender_frame,
    duel_frame,
    equivalence_frame,
    mark_frame,
    profile_frame,
    ratio_frame,
)
from benchcore.store.workarounds import list_workarounds
from dashboards.frames import NightSummary, SiteFrames
from dashboards.publish import publish_site


@dataclass(frozen=True, kw_only=True)
class RunTimes:
    """The campaign's last run, in seconds: all of it, and the part that was spent in duels."""

    wall_s: float | None
    measuring_s: float | None
    num_resumed: int


def publish_campaign(state: State, campaign: str) -> Path:
    """Write the campaign's page, and make the newest campaign's page the site's first, unless it is
    a defect study's, which has a page of its own and nothing that counts.

    Raises UserError if the database holds nothing of the campaign.
    """
    engine = open_database(state.database_url)
    now = datetime.now(UTC)
    duels = duel_frame(engine)
    of_campaign = duels.loc[duels["campaign"] == campaign]
    if of_campaign.empty:
        raise UserError(
            f"wanted results of campaign {campaign!r}, but the database holds none; "
            "run `deadheat ingest`, or measure it with `deadheat nightly`"
        )
    events = ProgressReader(progress_log(state, campaign).path).read_new()
    night = summarise(load_campaign(state, campaign), of_campaign, time_last_run(events, now))
    frames = SiteFrames(
        ratios=ratio_frame(engine),
        contenders=contender_frame(engine, campaign),
        equivalence=equivalence_frame(engine, campaign),
        marks=mark_frame(engine, campaign),
        profiles=profile_frame(engine, campaign),
        bottlenecks=bottleneck_frame(engine, campaign),
        epochs=epoch_frame(engine, campaign),
        night=night,
        workarounds=list_workarounds(engine, campaign),
    )
    folder = state.site / campaign
    page = publish_site(frames, folder, campaign=campaign, generated_at=now)
    newer = duels["started_at"].max() > of_campaign["started_at"].max()
    if newer or DEFECT_TRACK in set(of_campaign["track"]):
        return page
    part = state.site / "index.html.part"
    shutil.copyfile(page, part)
    return part.rename(state.site / "index.html")


def summarise(plan: Plan, duels: pd.DataFrame, times: RunTimes) -> NightSummary:
    """The campaign in numbers; what the duels share is read off the first."""
    first: dict[str, Any] = duels.iloc[0].to_dict()
    return NightSummary(
        campaign=plan.campaign,
        profile=plan.profile,
        site=plan.site,
        node=first["node"],
        device_model=first["device_model"],
        host=first["host"],
        started_at=duels["started_at"].min().to_pydatetime(),
        ended_at=duels["ended_at"].max().to_pydatetime(),
        wall_s=times.wall_s,
        measuring_s=times.measuring_s,
        num_planned=len(plan.duels),
        num_measured=len(duels),
        num_resumed=times.num_resumed,
        harness_version=first["harness_version"],
        snapshot=first["snapshot"],
        method=int(first["method"]),
        notes=plan.notes,
    )


def time_last_run(events: Iterable[dict[str, Any]], now: datetime) -> RunTimes:
    """Where the time of the campaign's last run went. Nothing known, nothing said."""
    begun: float | None = None
    measuring, resumed, duel_begun = 0.0, 0, 0.0
    for event in events:
        match event.get("event"), event.get("what"):
            case "campaign", "begun":
                begun, measuring, resumed = event["time"], 0.0, 0
            case "duel", "begun":
                duel_begun = event["time"]
            case "duel", "resumed":
                resumed, duel_begun = resumed + 1, event["time"]
            case "duel", "done":
                measuring += event["time"] - duel_begun
            case _:
                pass
    if begun is None:
        return RunTimes(wall_s=None, measuring_s=None, num_resumed=resumed)
    return RunTimes(wall_s=now.timestamp() - begun, measuring_s=measuring, num_resumed=resumed)

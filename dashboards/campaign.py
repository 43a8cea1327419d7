"""Publishes one campaign: its rows from the store, its times from its progress, its page."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
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
from benchcore.store.calibration import measure_calibration
from benchcore.store.database import Engine, open_database
from benchcore.store.epochs import epoch_frame, list_trained
from benchcore.store.frames import (
    contender_frame,
    duel_frame,
    equivalence_frame,
    mark_frame,
    profile_frame,
    ratio_frame,
)
from benchcore.store.programs import list_programs
from benchcore.store.series import read_series
from benchcore.store.suspicions import list_modes
from benchcore.store.trials import without_trials
from benchcore.store.workarounds import list_workarounds
from dashboards.frames import NightSummary, SiteFrames
from dashboards.pages import list_pages
from dashboards.publish import publish_site, write_page


@dataclass(frozen=True, kw_only=True)
class RunTimes:
    """The campaign's last run, in seconds: all of it, and the part that was spent in duels."""

    wall_s: float | None
    measuring_s: float | None
    num_resumed: int


def publish_campaign(state: State, campaign: str) -> Path:
    """Write the campaign's page, and the site's first: that of the newest campaign published here,
    a defect study aside, which has a page of its own and nothing that counts.

    Both link to whatever other pages the site has by then. Returns the campaign's own, or the first
    page where that is the same. Raises UserError if the database holds nothing of the campaign.
    """
    engine = open_database(state.database_url)
    duels = duel_frame(engine)
    if campaign not in set(duels["campaign"]):
        raise UserError(
            f"wanted results of campaign {campaign!r}, but the database holds none; "
            "run `deadheat ingest`, or measure it with `deadheat nightly`"
        )
    now = datetime.now(UTC)
    frames = _gather(state, engine, duels, campaign, now)
    told: dict[str, Any] = {"campaign": campaign, "generated_at": now}
    page = publish_site(frames, state.site / campaign, is_first=False, **told)
    first = _find_first(state.site, duels)
    if first == campaign:
        pages = list_pages(state.site, duels, list_trained(engine))  # its own is there by now
        return publish_site(replace(frames, pages=pages), state.site, **told)
    if first is not None:
        _publish_first(state, engine, duels, first, now)
    return page


def read_page(state: State, campaign: str) -> str | None:
    """The campaign's page as it is published, if it is."""
    page = state.site / campaign / "index.html"
    return page.read_text(encoding="utf-8") if page.is_file() else None


def withdraw_campaign(state: State, campaign: str, before: str | None) -> None:
    """Put a campaign's page back to what `read_page` gave before it was published, and make the
    site's first page of what is left."""
    folder = state.site / campaign
    if before is None:
        (folder / "index.html").unlink(missing_ok=True)
    else:
        write_page(before, folder)
    engine = open_database(state.database_url)
    duels = duel_frame(engine)
    first = _find_first(state.site, duels)
    if first is None:
        (state.site / "index.html").unlink(missing_ok=True)
    else:
        _publish_first(state, engine, duels, first, datetime.now(UTC))


def _publish_first(
    state: State, engine: Engine, duels: pd.DataFrame, campaign: str, now: datetime
) -> None:
    """The site's first page, of a campaign that has its own already."""
    with suppress(UserError):  # its plan is another version's: the page stays as it is
        frames = _gather(state, engine, duels, campaign, now)
        publish_site(frames, state.site, campaign=campaign, generated_at=now)


def _find_first(site: Path, duels: pd.DataFrame) -> str | None:
    studies = set(duels.loc[duels["track"] == DEFECT_TRACK, "campaign"])
    newest = duels.sort_values("started_at", kind="stable")["campaign"]
    published = [
        campaign
        for campaign in newest
        if campaign not in studies and (site / campaign / "index.html").is_file()
    ]
    return published[-1] if published else None


def _gather(
    state: State, engine: Engine, duels: pd.DataFrame, campaign: str, now: datetime
) -> SiteFrames:
    """What the campaign's page is made of. Raises UserError if its plan can't be read."""
    of_campaign = duels.loc[duels["campaign"] == campaign]
    events = ProgressReader(progress_log(state, campaign).path).read_new()
    night = summarise(load_campaign(state, campaign), of_campaign, time_last_run(events, now))
    return SiteFrames(
        ratios=ratio_frame(engine),
        contenders=without_trials(contender_frame(engine, campaign)),
        equivalence=without_trials(equivalence_frame(engine, campaign)),
        marks=without_trials(mark_frame(engine, campaign)),
        profiles=profile_frame(engine, campaign),
        bottlenecks=bottleneck_frame(engine, campaign),
        epochs=epoch_frame(engine, campaign),
        night=night,
        workarounds=list_workarounds(engine, campaign),
        programs=list_programs(engine, campaign),
        pages=list_pages(state.site, duels, list_trained(engine)),
        calibration=measure_calibration(engine),
        modes=list_modes(read_series(engine)),
    )


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

"""Publish a campaign: read its rows from the store and its times from the log, write its page."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from benchcore.errors import UserError
from benchcore.planning.matrix import Plan
from benchcore.progress import ProgressReader
from benchcore.protocol import DEFECT_TRACK
from benchcore.running.plans import load_campaign, progress_log
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import duel_frame, equivalence_frame, failed_check_frame
from benchcore.store.frames.epochs import epoch_frame, list_trained
from benchcore.store.frames.profiles import bottleneck_frame, profile_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.frames.reading import drop_calibration_runs
from benchcore.store.reports.calibration import measure_calibration
from benchcore.store.reports.campaign import list_programs
from benchcore.store.reports.void import explain_void
from benchcore.store.reports.workarounds import list_workarounds
from benchcore.store.series import read_series
from benchcore.store.suspicions import list_modes
from dashboards.campaign_page import publish_site
from dashboards.frames import NightSummary, SiteFrames
from dashboards.page_links import list_pages
from dashboards.templating import write_page


@dataclass(frozen=True, kw_only=True)
class RunTimes:
    """The campaign's last run in seconds: wall time, and the part spent in duels."""

    wall_s: float | None
    measuring_s: float | None
    num_resumed: int


def publish_campaign(state: State, campaign: str) -> Path:
    """Write the campaign's page and the site's first page.

    The first page shows the newest published campaign, except defect studies, in which nothing
    counts. Returns the first page if it shows this campaign, else the campaign's page. Raises
    UserError if the database has no results of the campaign.
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
    same: dict[str, Any] = {"campaign": campaign, "generated_at": now}
    page = publish_site(frames, state.site / campaign, is_first=False, **same)
    first = _find_first(state.site, duels)
    if first == campaign:
        pages = list_pages(
            state.site, duels, list_trained(engine)
        )  # includes the page just written
        return publish_site(replace(frames, pages=pages), state.site, **same)
    if first is not None:
        _publish_first(state, engine, duels, first, now)
    return page


def read_page(state: State, campaign: str) -> str | None:
    """The HTML of the campaign's published page; None if there is none."""
    page = state.site / campaign / "index.html"
    return page.read_text(encoding="utf-8") if page.is_file() else None


def withdraw_campaign(state: State, campaign: str, before: str | None) -> None:
    """Restore the campaign's page to `before`, as `read_page` returned it, or remove it if None.
    Then update the site's first page."""
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
    """Write the site's first page from a campaign that already has a page."""
    with suppress(UserError):  # an incompatible plan: leave the page unchanged
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
    """Everything the campaign's page shows. Raises UserError if its plan can't be read."""
    of_campaign = duels.loc[duels["campaign"] == campaign]
    events = ProgressReader(progress_log(state, campaign).path).read_new()
    night = summarise(load_campaign(state, campaign), of_campaign, time_last_run(events, now))
    night = replace(night, void=explain_void(engine, campaign))
    return SiteFrames(
        ratios=ratio_frame(engine),
        contenders=drop_calibration_runs(contender_frame(engine, campaign)),
        equivalence=drop_calibration_runs(equivalence_frame(engine, campaign)),
        failed_checks=drop_calibration_runs(failed_check_frame(engine, campaign)),
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
    """The campaign in numbers; shared facts come from its first duel."""
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
    """The times of the campaign's last run; None if its beginning was not logged."""
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

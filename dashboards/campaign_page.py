"""The page of one campaign: charts, sentences and tables. It opens offline."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd

from benchcore.store.metrics import ON_PAGE
from dashboards import bottlenecks, epochs, error_rates, summary, tables, workarounds
from dashboards.forest_chart import (
    FRAMEWORK_DIRECTIONS,
    VERSION_DIRECTIONS,
    Directions,
    forest_chart,
    framework_rows,
    version_rows,
)
from dashboards.formatting import format_count
from dashboards.frames import SiteFrames, counting, keep, newest_pairs, of_campaign, version_pairs
from dashboards.history_chart import (
    find_condition_changes,
    history_chart,
    history_rows,
    split_cases,
)
from dashboards.templating import render_template, write_page

_MOST_CALIBRATION_RUNS = 20


def publish_site(
    frames: SiteFrames,
    folder: Path,
    *,
    campaign: str,
    generated_at: datetime,
    is_first: bool = True,
) -> Path:
    """Write a campaign's `index.html` into the folder atomically; returns its path.

    `is_first`: the folder is the site's root, not a campaign's folder in it.
    """
    page = render_page(frames, campaign=campaign, generated_at=generated_at, is_first=is_first)
    return write_page(page, folder)


def render_page(
    frames: SiteFrames, *, campaign: str, generated_at: datetime, is_first: bool = True
) -> str:
    """The page's HTML. Every string that comes from a frame is escaped."""
    ratios = of_campaign(frames.ratios, campaign)
    past = history_rows(frames.ratios, set(ratios["device_fingerprint"].dropna()))
    histories = {f"history-{place}": each for place, each in enumerate(split_cases(past).items())}
    charts = _draw_charts(ratios, histories)
    return render_template(
        "index.html.j2",
        charts,
        campaign=campaign,
        generated_at=f"{generated_at:%Y-%m-%d %H:%M %Z}".strip(),
        night=frames.night,
        links=_safe_links(frames.night.links),
        pages=_link_pages(frames, campaign, is_first),
        text=_write_text(frames, campaign, past),
        tables=_list_tables(frames, campaign),
        conditions=_list_conditions(histories),
        excluded_in_forest=_count_excluded(newest_pairs(ratios)),
        charts={place: chart["description"] for place, chart in charts.items()},
        history_places=list(histories),
        titles={place: label for place, (label, _) in histories.items()},
    )


def _draw_charts(
    ratios: pd.DataFrame, histories: dict[str, tuple[str, pd.DataFrame]]
) -> dict[str, dict[str, Any]]:
    """The Vega-Lite specification of every chart by the id of its place in the page."""
    pairs, versions = newest_pairs(ratios), version_pairs(ratios)
    charts: dict[str, dict[str, Any]] = {}
    if counting(pairs).any():
        rows = framework_rows(keep(pairs, counting(pairs)))
        subject = "JAX over PyTorch for each case and PyTorch arm"
        charts["frameworks"] = _draw_forest(rows, FRAMEWORK_DIRECTIONS, subject)
    if counting(versions).any():
        rows = version_rows(keep(versions, counting(versions)))
        subject = "each newer version over the older one for each case"
        charts["versions"] = _draw_forest(rows, VERSION_DIRECTIONS, subject)
    for place, (label, rows) in histories.items():
        description = f"Speedup of JAX over PyTorch on {label}, night by night."
        charts[place] = history_chart(rows, description=description).to_dict()
    return charts


def _list_conditions(histories: dict[str, tuple[str, pd.DataFrame]]) -> list[str]:
    """What changed around the nights of the histories, each once, oldest first."""
    found = {
        each["words"] for _, rows in histories.values() for each in find_condition_changes(rows)
    }
    return sorted(found)


def _draw_forest(rows: pd.DataFrame, directions: Directions, subject: str) -> dict[str, Any]:
    description = (
        f"Speedup of {subject}, with intervals, on a log axis. "
        "The table below holds the same numbers."
    )
    return forest_chart(rows, directions=directions, description=description).to_dict()


def _write_text(frames: SiteFrames, campaign: str, past: pd.DataFrame) -> dict[str, str]:
    """The sentences of the page by their place."""
    ratios = of_campaign(frames.ratios, campaign)
    return {
        "headline": summary.write_headline(ratios, frames.night),
        "frameworks": summary.answer_frameworks(ratios),
        "versions": summary.answer_versions(ratios),
        "failures": summary.answer_failures(of_campaign(frames.contenders, campaign)),
        "exclusions": summary.answer_exclusions(
            ratios, of_campaign(frames.failed_checks, campaign)
        ),
        "history": summary.answer_history(past),
    }


def _list_tables(frames: SiteFrames, campaign: str) -> dict[str, Any]:
    ratios = of_campaign(frames.ratios, campaign)
    contenders = of_campaign(frames.contenders, campaign)
    devices = set(ratios["device_fingerprint"])
    costs = tables.list_costs(contenders)
    measured = tables.measured_costs(costs)
    return {
        "ratios": tables.list_ratios(keep(ratios, ratios["kind"] == "cross_framework")),
        "versions": tables.list_ratios(keep(ratios, ratios["kind"] == "cross_version")),
        "settings": tables.list_ratios(keep(ratios, ratios["kind"] == "cross_setting")),
        "failures": tables.list_failures(contenders),
        "workarounds": workarounds.describe_workarounds(frames.workarounds),
        "contenders": tables.list_contenders(contenders),
        "costs": costs,
        "cost_columns": measured,
        "unmeasured_costs": [each.heading for each in ON_PAGE if each.key not in measured],
        "profiles": tables.list_profiles(of_campaign(frames.profiles, campaign)),
        "programs": bottlenecks.list_programs(frames.programs),
        "bottlenecks": bottlenecks.list_bottlenecks(of_campaign(frames.bottlenecks, campaign)),
        "epochs": epochs.list_epochs(of_campaign(frames.epochs, campaign).to_dict("records")),
        "excluded": tables.list_excluded(ratios),
        "failed_checks": tables.list_failed_checks(of_campaign(frames.failed_checks, campaign)),
        "equivalence": tables.list_equivalence(of_campaign(frames.equivalence, campaign)),
        "environments": tables.list_environments(contenders),
        "facts": tables.list_facts(frames.night, ratios, contenders),
        "calibration": _list_calibration(frames),
        "modes": [row for row in frames.modes if row["device_fingerprint"] in devices],
    }


def _list_calibration(frames: SiteFrames) -> dict[str, Any] | None:
    """None where there is no calibration run, as on the site of ad-hoc duels."""
    found = frames.calibration
    if found is None or not (found["trials"] or found["unfinished"]):
        return None
    return {
        "answer": error_rates.summarise_error_rates(found),
        "rates": error_rates.list_rates(found),
        "smallest": error_rates.list_smallest(found),
        "trials": error_rates.list_calibration_runs(found)[:_MOST_CALIBRATION_RUNS],
    }


def _link_pages(
    frames: SiteFrames, campaign: str, is_first: bool
) -> dict[str, list[tuple[str, str]]]:
    """Titles and addresses of the site's other pages, by kind."""
    linked: dict[str, list[tuple[str, str]]] = {}
    for page in frames.pages:
        if (page.campaign, page.file) != (campaign, "index.html"):
            linked.setdefault(page.kind, []).append((page.title, page.address(is_first)))
    return linked


def _count_excluded(pairs: pd.DataFrame) -> str:
    count = int((~counting(pairs)).sum())
    if count == 0:
        return ""
    return f"{format_count(count, 'pair')} {'does' if count == 1 else 'do'} not count"


def _safe_links(links: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Only links that open a page, never a script."""
    return [
        (label, address)
        for label, address in links
        if urlsplit(address).scheme.lower() in ("", "http", "https")
    ]

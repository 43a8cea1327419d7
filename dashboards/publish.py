"""Assembles the static site: one page that opens offline and asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import altair as alt
import jinja2
import vl_convert
from markupsafe import Markup

from benchcore.protocol import name_part
from dashboards import calibration, epochs, headline, history, tables, why, workarounds
from dashboards.frames import SiteFrames, counting, keep, newest_pairs, of_campaign, version_pairs
from dashboards.pictures import VEGA_LITE
from dashboards.ratios import (
    FRAMEWORK_DIRECTIONS,
    VERSION_DIRECTIONS,
    forest_chart,
    framework_rows,
    version_rows,
)
from dashboards.wording import format_count

_MOST_TRIALS = 20
_TEMPLATES = Path(__file__).parent / "templates"


def publish_site(
    frames: SiteFrames,
    folder: Path,
    *,
    campaign: str,
    generated_at: datetime,
    is_first: bool = True,
) -> Path:
    """Write `index.html` of a campaign into the folder, whole or not at all; returns its path.

    `is_first`: the folder is the site's own, not one of a campaign in it.
    """
    page = render_page(frames, campaign=campaign, generated_at=generated_at, is_first=is_first)
    return write_page(page, folder)


def write_page(page: str, folder: Path, name: str = "index.html") -> Path:
    """Make it the folder's page of that name, whole or not at all; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    part = name_part(folder / name)
    part.write_text(page, encoding="utf-8")
    return part.replace(folder / name)


def render_page(
    frames: SiteFrames, *, campaign: str, generated_at: datetime, is_first: bool = True
) -> str:
    """The page's text. Every string that comes from a frame is escaped."""
    ratios = of_campaign(frames.ratios, campaign)
    charts = _draw_charts(frames, campaign)
    scripts = [vega_bundle(), read_template("charts.js")]
    return (
        jinja_environment()
        .get_template("index.html.j2")
        .render(
            campaign=campaign,
            generated_at=f"{generated_at:%Y-%m-%d %H:%M %Z}".strip(),
            night=frames.night,
            links=_safe_links(frames.night.links),
            pages=_link_pages(frames, campaign, is_first),
            text=_write_text(frames, campaign),
            tables=_list_tables(frames, campaign),
            excluded_in_forest=_count_left_out(newest_pairs(ratios)),
            charts={place: chart["description"] for place, chart in charts.items()},
            history_places=[place for place in charts if place.startswith("history-")],
            titles=_history_titles(frames, campaign),
            charts_json=Markup(escape_json(charts)),
            style=Markup(read_template("style.css")),
            scripts=[Markup(script) for script in scripts],
            policy=content_policy(scripts),
        )
    )


def escape_json(value: object) -> str:
    """JSON that can stand inside a script element: no `<`, `>`, `&`, no NaN."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@lru_cache(maxsize=1)
def vega_bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script, of the version that altair writes for."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    assert "</script" not in bundle.lower()
    assert "<!--" not in bundle
    return bundle


def _draw_charts(frames: SiteFrames, campaign: str) -> dict[str, dict[str, Any]]:
    """The Vega-Lite specification of every chart under the id of its place in the page."""
    ratios = of_campaign(frames.ratios, campaign)
    pairs = newest_pairs(ratios)
    versions = version_pairs(ratios)
    charts: dict[str, alt.LayerChart] = {}
    if counting(pairs).any():
        charts["frameworks"] = forest_chart(
            framework_rows(keep(pairs, counting(pairs))),
            directions=FRAMEWORK_DIRECTIONS,
            description="Speedup of JAX over PyTorch for each case and PyTorch arm, with "
            "intervals, on a log axis. The table below holds the same numbers.",
        )
    if counting(versions).any():
        charts["versions"] = forest_chart(
            version_rows(keep(versions, counting(versions))),
            directions=VERSION_DIRECTIONS,
            description="Speedup of each newer version over the older one for each case, with "
            "intervals, on a log axis. The table below holds the same numbers.",
        )
    for place, (label, rows) in enumerate(_history_cases(frames, campaign).items()):
        charts[f"history-{place}"] = history.history_chart(
            rows, description=f"Speedup of JAX over PyTorch on {label}, night by night."
        )
    return {place: chart.to_dict() for place, chart in charts.items()}


def _history_cases(frames: SiteFrames, campaign: str) -> dict[str, Any]:
    fingerprints = set(of_campaign(frames.ratios, campaign)["device_fingerprint"].dropna())
    return history.split_cases(history.history_rows(frames.ratios, fingerprints))


def _history_titles(frames: SiteFrames, campaign: str) -> dict[str, str]:
    cases = _history_cases(frames, campaign)
    return {f"history-{place}": label for place, label in enumerate(cases)}


def _write_text(frames: SiteFrames, campaign: str) -> dict[str, str]:
    """The sentences of the page by their place."""
    ratios = of_campaign(frames.ratios, campaign)
    contenders = of_campaign(frames.contenders, campaign)
    fingerprints = set(ratios["device_fingerprint"].dropna())
    return {
        "headline": headline.write_headline(ratios, frames.night),
        "frameworks": headline.answer_frameworks(ratios),
        "versions": headline.answer_versions(ratios),
        "failures": headline.answer_failures(contenders),
        "exclusions": headline.answer_exclusions(ratios, of_campaign(frames.marks, campaign)),
        "history": headline.answer_history(history.history_rows(frames.ratios, fingerprints)),
    }


def _list_tables(frames: SiteFrames, campaign: str) -> dict[str, Any]:
    ratios = of_campaign(frames.ratios, campaign)
    contenders = of_campaign(frames.contenders, campaign)
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
        "unmeasured_costs": [each for key, each in tables.COSTS.items() if key not in measured],
        "profiles": tables.list_profiles(of_campaign(frames.profiles, campaign)),
        "programs": why.list_programs(frames.programs),
        "bottlenecks": why.list_bottlenecks(of_campaign(frames.bottlenecks, campaign)),
        "epochs": epochs.list_epochs(of_campaign(frames.epochs, campaign)),
        "excluded": tables.list_excluded(ratios),
        "marks": tables.list_marks(of_campaign(frames.marks, campaign)),
        "equivalence": tables.list_equivalence(of_campaign(frames.equivalence, campaign)),
        "environments": tables.list_environments(contenders),
        "facts": tables.list_facts(frames.night, ratios, contenders),
        "calibration": _list_calibration(frames),
        "modes": [
            row
            for row in frames.modes
            if row["device_fingerprint"] in set(ratios["device_fingerprint"])
        ],
    }


def _list_calibration(frames: SiteFrames) -> dict[str, Any] | None:
    """None where no trial has been played, as on the site of ad-hoc duels."""
    found = frames.calibration
    if found is None or not (found["trials"] or found["unfinished"]):
        return None
    return {
        "answer": calibration.answer_calibration(found),
        "rates": calibration.list_rates(found),
        "smallest": calibration.list_smallest(found),
        "trials": calibration.list_trials(found)[:_MOST_TRIALS],
    }


def _link_pages(
    frames: SiteFrames, campaign: str, is_first: bool
) -> dict[str, list[tuple[str, str]]]:
    """Titles and addresses of the site's other pages, by their kind."""
    linked: dict[str, list[tuple[str, str]]] = {}
    for page in frames.pages:
        if (page.campaign, page.file) != (campaign, "index.html"):
            linked.setdefault(page.kind, []).append((page.title, page.address(is_first)))
    return linked


def _count_left_out(pairs: Any) -> str:
    count = int((~counting(pairs)).sum())
    if count == 0:
        return ""
    return f"{format_count(count, 'pair')} {'does' if count == 1 else 'do'} not count"


def _safe_links(links: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Links that lead to a page, never to a script."""
    return [
        (label, address)
        for label, address in links
        if urlsplit(address).scheme.lower() in ("", "http", "https")
    ]


def content_policy(scripts: list[str]) -> str:
    """Only our own scripts run, known by their hashes, and nothing is fetched.

    Vega compiles its expressions with Function, hence unsafe-eval.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src 'unsafe-eval' {hashes}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def read_template(name: str) -> str:
    """The text of a file of `templates/`."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def jinja_environment() -> jinja2.Environment:
    """Templates that escape whatever they are given, and refuse what they lack."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

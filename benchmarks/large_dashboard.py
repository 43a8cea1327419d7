"""How long a large dashboard takes to build, what a night adds, and when its pages are interactive.

    .venv/bin/python benchmarks/large_dashboard.py --contenders 100000
    .venv/bin/python benchmarks/large_dashboard.py --contenders 1000000 --folder LARGE

The database holds the made-up year of `deadheat demo`, and copies of it: nights of some 50 duels on
four machines, a year each, then the year before. `--folder` holds the state; a folder that has a
database is not filled again. A page is interactive once its content is there, and its charts.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from copied_years import copy_night, copy_year
from one_duel import store_results, time_call
from playwright.sync_api import Page, sync_playwright
from sqlalchemy import select
from store import LAST, count_rows

from benchcore.cell.measure.host import describe_host
from benchcore.demo.story import DAYS
from benchcore.demo.write import write_nights
from benchcore.state import State, open_state
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import list_campaigns
from benchcore.store.models import ContenderRun, DuelRun
from dashboards.publish import publish_campaign
from dashboards.website.files import WebsiteFiles

MACHINES = 4
CASES_FACTOR = 13
"""Copies of a year that make a night: 13 times some four duels."""
CHARTS = {"series.html#case": 1, "duel.html#run": 3}
"""How many charts a page draws at once, by the begin of its address."""


def main() -> None:
    """Print the times of the build, of an added night and of each page, and store them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contenders", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=None, help="a state folder to use again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deadheat-site-") as temporary:
        state = open_state(options.folder or Path(temporary))
        engine = open_database(state.database_url, made_up=True)
        if not list_campaigns(engine):
            print(f"filled in {time_call(lambda: fill(state, engine, options.contenders)):.0f} s")
        found = measure(state, engine)
        found["pages_s"] = dict(time_pages(state.website, list_addresses(state.website)))
        engine.dispose()
    for name, value in found.items():
        print(f"{name:16} {value}")
    store_results(f"site-{options.contenders}", {"host": describe_host(), **found})


def fill(state: State, engine: Engine, contenders: int) -> None:
    """Store the made-up year, and copies of it until there are so many contender runs."""
    write_nights(state, engine, LAST, DAYS)
    with engine.connect() as connection:
        fingerprint = connection.scalar(select(DuelRun.device_fingerprint).limit(1))
    assert fingerprint is not None
    year = count_rows(engine, ContenderRun)
    for number in range(round(contenders / year) - 1):
        copy_year(engine, fingerprint, number, MACHINES, per_night=CASES_FACTOR)


def measure(state: State, engine: Engine) -> dict[str, Any]:
    """Build a new dashboard, then add a night to it."""
    shutil.rmtree(state.website, ignore_errors=True)
    newest = list_campaigns(engine)[-1]
    built = {
        "duel_runs": count_rows(engine, DuelRun),
        "contender_runs": count_rows(engine, ContenderRun),
        **_time("build", lambda: publish_campaign(state, newest)),
        "campaigns": len(WebsiteFiles(state.website).read("catalog")["campaigns"]),
        **_measure_files(state.website),
    }
    added = copy_night(engine, newest)
    night = _time("night", lambda: publish_campaign(state, added))
    after = _measure_files(state.website)
    more = {f"added_{name}": round(after[name] - built[name], 1) for name in after}
    peak_mb = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
    return {**built, **night, **more, "peak_mb": peak_mb}


def _time(name: str, call: Callable[[], object]) -> dict[str, float]:
    """Seconds, and those of the CPU: others may keep the machine busy."""
    began = time.process_time()
    seconds = time_call(call)
    return {
        f"{name}_s": round(seconds, 1),
        f"{name}_cpu_s": round(time.process_time() - began, 1),
    }


def _measure_files(website: Path) -> dict[str, float]:
    sizes = [each.stat().st_size for each in website.rglob("*") if each.is_file()]
    return {"files": len(sizes), "mb": round(sum(sizes) / 1e6, 1)}


def list_addresses(website: Path) -> list[str]:
    """An address of every kind of page."""
    files = WebsiteFiles(website)
    catalog = files.read("catalog")
    nights = [each["name"] for each in catalog["campaigns"] if each["kind"] == "nightly"]
    cells = files.read(f"campaigns/{nights[-1]}")["cells"]
    case = max(catalog["cases"], key=lambda each: len(each["months"]))
    stems = ("index", "events", "releases", "guide", "operations", "health", "runs", "series")
    return [
        *(f"{stem}.html" for stem in stems),
        f"series.html#case={case['key']}",
        f"duel.html#run={cells[0]['run']}",
        f"compare.html#a={nights[-2]}&b={nights[-1]}",
    ]


def time_pages(website: Path, addresses: list[str]) -> Iterator[tuple[str, float]]:
    """By page, seconds until its content and its charts are there, in headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for address in addresses:
            page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
            yield address, round(_time_page(page, website, address), 2)
            page.context.close()
        browser.close()


def _time_page(page: Page, website: Path, address: str) -> float:
    file, _, state = address.partition("#")
    began = time.perf_counter()
    page.goto((website / file).as_uri() + (f"#{state}" if state else ""))
    page.wait_for_selector("html[data-ready]", state="attached")
    if charts := CHARTS.get(address.partition("=")[0], 0):
        page.locator(".chart[data-drawn]").nth(charts - 1).wait_for(state="attached")
    return time.perf_counter() - began


if __name__ == "__main__":
    main()

"""What people take from a page: each chart as CSV, PNG and SVG, each table as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest
from dashboard_nights import NIGHTS, name_night
from page_visits import DUEL, PAGES, Visit
from playwright.sync_api import Browser, Locator, Page

from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.duels import list_campaigns
from benchcore.store.reports.export import RATIO_COLUMNS, export_tables
from dashboards.website.files import WebsiteFiles
from dashboards.website.gather import read_campaigns
from dashboards.website.outputs import downloads

MOST = 3
"""Charts of a page that are tried: Chromium asks before it gives a page more than ten files."""
SERIES = next(each for each in PAGES if each.startswith("series.html#"))


def _download(page: Page, button: Locator) -> tuple[str, bytes]:
    """The suggested name and the content of what a button gives."""
    with page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


@pytest.mark.browser
@pytest.mark.parametrize("address", [SERIES, f"duel.html#run={DUEL}"])
def test_every_chart_downloads_as_csv_png_and_svg(
    browser: Browser, website: Path, address: str
) -> None:
    visit = Visit(browser)
    page = visit.open(website, address, PAGES[address])
    figures = page.locator("figure:has(.chart[data-drawn])")
    assert figures.count() >= PAGES[address]
    for place in range(min(figures.count(), MOST)):
        figure = figures.nth(place)
        found = {
            kind: _download(page, figure.get_by_role("button", name=f"Download as {kind}: "))
            for kind in ("CSV", "PNG", "SVG")
        }
        assert {name.rpartition(".")[2] for name, _ in found.values()} == {"csv", "png", "svg"}
        rows = list(csv.reader(found["CSV"][1].decode().splitlines()))
        assert len(rows) > 1 and {len(row) for row in rows} == {len(rows[0])}
        png = found["PNG"][1]
        assert png.startswith(b"\x89PNG") and int.from_bytes(png[16:20]) > 800  # twice as wide
        svg = found["SVG"][1].decode()
        assert svg.startswith("<svg") and svg.count("<path") > 3
    assert visit.complaints == []
    visit.context.close()


@pytest.mark.browser
def test_a_table_downloads_the_rows_that_its_filter_leaves(browser: Browser, website: Path) -> None:
    visit = Visit(browser)
    page = visit.open(website, "runs.html")
    nights = page.locator("#nights")
    name, content = _download(page, nights.get_by_role("button", name="Download as CSV").first)
    assert name == "nights.csv"
    lines = list(csv.reader(content.decode().splitlines()))
    assert len(lines) == 1 + nights.locator("tbody tr").count()
    page.get_by_label("Filter rows").first.fill(lines[1][0])
    content = _download(page, nights.get_by_role("button", name="Download as CSV").first)[1]
    assert [row[0] for row in csv.reader(content.decode().splitlines())] == [
        lines[0][0],
        lines[1][0],
    ]
    visit.context.close()


def test_the_files_of_all_months_hold_what_an_export_does(nights: State) -> None:
    engine = open_database(nights.database_url)
    wanted = export_tables(engine, list_campaigns(engine))["ratios"]
    paths = sorted((nights.website / "downloads").glob("*.csv"))
    found = pd.concat([pd.read_csv(each) for each in paths], ignore_index=True)
    assert list(found) == list(RATIO_COLUMNS) and len(found) == len(wanted) > 0
    key = ["duel_run", "a_environment_key", "b_environment_key", "a_arm", "b_arm"]
    ours, theirs = (each.sort_values(key).reset_index(drop=True) for each in (found, wanted))
    for name in ("speedup", "low", "high", "campaign", "snapshot", *key):
        pd.testing.assert_series_equal(ours[name], theirs[name], check_dtype=False)
    parquet = pd.concat([pd.read_parquet(each.with_suffix(".parquet")) for each in paths])
    assert len(parquet) == len(found) and parquet["speedup"].dtype == float
    links = str(WebsiteFiles(nights.website).read("pages/runs"))
    assert all(f"downloads/{path.name}" in links for path in paths)
    engine.dispose()


def test_a_campaign_is_replaced_and_dropped_in_its_month(nights: State, tmp_path: Path) -> None:
    engine = open_database(nights.database_url)
    names = [name_night(each) for each in (0, NIGHTS - 1)]
    first, last = read_campaigns(nights, engine, names)
    pairs = downloads.NewPairs()
    for each in (first, last):  # together, then one again
        pairs.add(each)
    pairs.write(tmp_path)
    pairs.add(last)
    pairs.write(tmp_path)
    (path,) = {*(tmp_path / "downloads").iterdir()}
    before = pd.read_csv(path)["campaign"].value_counts()
    assert set(before.index) == {first.name, last.name}
    downloads.drop_pairs(tmp_path, last.name, last.begun.isoformat())
    after = pd.read_csv(path)["campaign"].value_counts()
    assert dict(after) == {first.name: before[first.name]}
    engine.dispose()

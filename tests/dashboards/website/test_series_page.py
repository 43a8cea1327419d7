"""The page of a series in a real Chromium: its chart, its brush and its table."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from dashboard_nights import MOVED, NIGHTS, name_night
from page_visits import CASE, Visit
from playwright.sync_api import Browser, Locator, Page, expect

from dashboards.website.files import WebsiteFiles

pytestmark = pytest.mark.browser


def test_a_brush_zooms_a_series_and_the_axis_fits_what_is_shown(
    browser: Browser, website: Path
) -> None:
    visit = Visit(browser, 1280)
    page = visit.open(website, f"series.html#case={CASE}", 1)
    chart = page.locator(".chart")
    texts = chart.locator("svg text").all_text_contents()
    assert {"PyTorch 2.15.0", "JAX 0.12.1", "event 1"} <= set(texts)
    assert page.locator("main li a", has_text="event 1").get_attribute("href") == (
        "events.html#event-1"
    )
    ratios = [float(each.partition("x")[0]) for each in _read_column(page, "Ratio and interval")]
    moved, level = ratios[: NIGHTS - MOVED], ratios[NIGHTS - MOVED :]  # newest first
    assert max(moved) < min(level)
    first = _ticks(page, "X").first
    begin, whole = first.text_content(), _read_numbers(page)
    assert whole[0] < max(moved) < whole[-1]

    box = chart.locator("svg").bounding_box()
    assert box is not None
    height = box["y"] + box["height"] - 20  # within the strip below the chart
    left, right = (box["x"] + share * box["width"] for share in (0.08, 0.45))
    page.mouse.move(left, height)
    page.mouse.down()
    page.mouse.move(right, height, steps=4)
    page.mouse.up()
    expect(first).not_to_have_text(str(begin))
    assert _read_numbers(page)[0] > max(moved), "the nights after the change are out of sight"
    page.mouse.dblclick((left + right) / 2, height)
    expect(first).to_have_text(str(begin))
    assert _read_numbers(page) == whole

    page.get_by_role("group", name="Which series").get_by_label("Pair").select_option(
        "jax-jit~torch-eager"
    )
    page.get_by_role("heading", level=1, name=re.compile("eager")).wait_for()
    page.locator(".chart[data-drawn]").wait_for()
    assert _read_numbers(page)[0] > whole[-1], "each arm has its own axis"
    assert visit.complaints == []
    visit.context.close()


def _ticks(page: Page, axis: str) -> Locator:
    """The labels of the first X or Y axis of the page."""
    found = page.locator(f'.chart [aria-roledescription="axis"][aria-label^="{axis}-axis"]').first
    return found.locator(".role-axis-label text")


def _read_numbers(page: Page) -> list[float]:
    texts = _ticks(page, "Y").all_text_contents()
    return sorted(float(each.removesuffix("x")) for each in texts if each)


def _read_column(page: Page, name: str) -> list[str]:
    """The cells of the last table's column."""
    table = page.locator("table").last
    heads = [each.strip() for each in table.locator("thead th").all_inner_texts()]
    place = heads.index(name) + 1
    return table.locator(f"tbody tr > :nth-child({place})").all_inner_texts()


def test_only_the_step_time_has_a_verdict_a_night(browser: Browser, website: Path) -> None:
    case = WebsiteFiles(website).read("catalog")["cases"][0]["key"]
    visit = Visit(browser)
    for metric, expected in (("median_step_ns", True), ("cold_compile_s", False)):
        page = visit.open(website, f"series.html#case={case}&metric={metric}", 1)
        heads = page.locator("thead th").all_inner_texts()
        assert len(heads) > 4 and ("Verdict" in heads) == expected
    assert visit.complaints == [], "a metric without intervals is drawn, too"
    visit.context.close()


def test_a_brush_over_a_gap_says_that_no_night_was_measured(
    browser: Browser, website: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "website"
    shutil.copytree(website, copy)
    files, gone = WebsiteFiles(copy), {name_night(each) for each in range(5, 9)}
    (case,) = (each for each in files.read("catalog")["cases"] if each["key"] == CASE)
    for name in (f"history/{CASE}/{month}" for month in case["months"]):
        month = files.read(name)
        runs = {run: each for run, each in month["runs"].items() if each["campaign"] not in gone}
        rows = [row for row in month["rows"] if row[0] in runs]
        files.write(name, {**month, "runs": runs, "rows": rows})
    files.flush()
    visit = Visit(browser)
    page = visit.open(copy, f"series.html#case={CASE}", 1)
    whole = _read_numbers(page)
    nothing = page.locator(".chart svg text", has_text="No night was measured here.")
    assert nothing.count() == 0
    strip = page.locator(".chart svg .mark-line path").last.bounding_box()
    assert strip is not None

    def drag(first: float, last: float) -> None:
        """Over the strip, which spans all nights."""
        left, right = (strip["x"] + each / (NIGHTS - 1) * strip["width"] for each in (first, last))
        height = strip["y"] + strip["height"] / 2
        page.mouse.move(left, height)
        page.mouse.down()
        page.mouse.move(right, height, steps=4)
        page.mouse.up()

    drag(4.6, 8.4)
    nothing.wait_for()
    assert _read_numbers(page) == whole, "the axis stays"
    page.mouse.dblclick(strip["x"] + 0.5 * strip["width"], strip["y"] + strip["height"] / 2)
    nothing.wait_for(state="detached")
    drag(0.5, 3.5)
    expect(_ticks(page, "X").first).to_be_visible()
    assert nothing.count() == 0
    assert visit.complaints == []
    visit.context.close()

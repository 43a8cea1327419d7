"""What screenshots showed to be ugly, in a real Chromium: each stays as it was corrected."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from page_visits import DUEL, Visit
from playwright.sync_api import Browser, Page

from dashboards.website.files import WebsiteFiles

pytestmark = pytest.mark.browser
BLOCKS = "(block) => document.querySelector('main').append(deadheat.blocks.render(block))"


def _render(page: Page, block: dict[str, Any]) -> None:
    page.evaluate(BLOCKS, block)


def test_every_chart_of_a_duel_has_a_caption(browser: Browser, website: Path) -> None:
    page = Visit(browser).open(website, f"duel.html#run={DUEL}", 3)
    captions = page.locator("figure:has(.chart) figcaption").all_inner_texts()
    assert len(captions) == page.locator(".chart").count() >= 3
    assert captions[:2] == [
        "Time per step of every block, by start and round.",
        "The same times, by contender.",
    ]


@pytest.mark.parametrize(("width", "fewest", "most"), [(1280, 8, 12), (390, 1, 3)])
def test_a_legend_of_many_contenders_fills_the_width(
    browser: Browser, website: Path, width: int, fewest: int, most: int
) -> None:
    page = Visit(browser, width).open(website, "runs.html")
    names = [f"JAX 0.{minor}.0" for minor in range(9, 22)]
    points = [
        {"turn": place, "ms": 1.0 + place, "contender": name, "start": 1, "round": place}
        | {"framework": "JAX", "degraded": ""}
        for place, name in enumerate(names)
    ]
    chart = {"kind": "chart", "spec": "block_times", "description": "Many"}
    _render(page, {**chart, "caption": "Many", "datasets": {"points": points}})
    page.locator(".chart[data-drawn]").wait_for()
    labels = page.locator(".chart .role-legend-label text")
    assert labels.all_text_contents() == names, "in the order of the data: 0.9 before 0.10"
    tops = [box["y"] for box in (each.bounding_box() for each in labels.all()) if box]
    in_first_row = sum(abs(each - tops[0]) < 3 for each in tops)
    assert fewest <= in_first_row <= most
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_headings_of_numbers_wrap_before_a_table_scrolls(browser: Browser, website: Path) -> None:
    page = Visit(browser).open(website, "runs.html")
    heads = ["Latency, median", "Latency, p95", "Latency / step time", "Memory planned"]
    heads += ["Allocator peak", "Process peak", "Process memory before work", "Energy per step"]
    columns = [{"key": "name", "name": "Contender"}]
    columns += [{"key": head, "name": head, "align": "number"} for head in heads]
    row = {"name": "PyTorch 2.15.1 compiled", **dict.fromkeys(heads, "1,234 MiB")}
    _render(page, {"kind": "table", "name": "c", "caption": "Costs", "columns": columns,
                   "rows": [row]})  # fmt: skip
    table = page.get_by_role("region", name="Costs")
    assert table.evaluate("each => each.scrollWidth <= each.clientWidth")


def test_a_long_verdict_wraps_and_a_short_one_does_not(browser: Browser, website: Path) -> None:
    page = Visit(browser).open(website, "runs.html")
    texts = ["PyTorch 2.15.0 compiled, optimizer fused faster", "JAX faster"]
    rows = [{"verdict": {"text": each, "badge": "good"}} for each in texts]
    _render(page, {"kind": "table", "name": "v", "caption": "Verdicts", "rows": rows,
                   "columns": [{"key": "verdict", "name": "Verdict?"}]})  # fmt: skip
    spaces = page.locator(".badge").evaluate_all(
        "all => all.map(each => getComputedStyle(each).whiteSpace)"
    )
    assert spaces == ["normal", "nowrap"]
    assert page.locator("[data-name='Verdict']").count() == 2, "no `Verdict?: JAX` on a phone"


def test_without_a_night_the_first_page_lists_the_newest_runs(
    browser: Browser, website: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(website, tmp_path / "copy"))
    files = WebsiteFiles(copy)
    catalog = files.read("catalog")
    runs = [each for each in catalog["campaigns"] if each["kind"] != "nightly"]
    files.write("catalog", {**catalog, "campaigns": runs, "newest_night": None, "cases": []})
    files.flush()
    page = Visit(browser).open(copy, "index.html")
    assert page.locator("h1").inner_text() == "No night has been measured yet"
    table = page.get_by_role("region", name="The newest single runs.")
    assert table.locator("tbody th a").all_inner_texts() == [runs[-1]["name"]]
    assert runs[-1]["verdict"] in table.inner_text()
    page.get_by_role("link", name="what each version changed").click()
    page.get_by_role("heading", name="Releases", exact=True).wait_for()

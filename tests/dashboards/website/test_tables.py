"""Tables in a real Chromium: amounts sort by size, and words filter rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_visits import Visit
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
ROWS = """(values) => document.querySelector('main').append(deadheat.blocks.render({kind: 'table',
 name: 'mixed', caption: 'Mixed', columns: [{key: 'n', name: 'Amount'}],
 rows: values.map(n => ({n}))}))"""


@pytest.mark.parametrize(
    "ordered",
    [
        ["none", "512 \u00b5s / 2 ms", "1.52 ms", "1.6 ms", "3.00 s", "42 min", "2 h 30 min"],
        ["999 MiB", "1,024 MiB", "1,413 MiB"],
        ["at once", "950 steps", "1,200 steps"],
        ["\u22125 %", "+3 %", "+12 %"],
        ["1.0e-07", "3.1e-06", "2.0e-05"],
        ["0.9.1", "0.12.0", "0.12.1"],
        ["2026-09-30", "2026-11-02"],
    ],
)
def test_a_table_sorts_amounts_by_size_and_what_is_missing_last(
    browser: Browser, website: Path, ordered: list[str]
) -> None:
    page = Visit(browser).open(website, "runs.html")
    shuffled = ["not measured", *ordered[1::2], *ordered[::2], *12 * ["not known"]]
    page.evaluate(ROWS, shuffled)
    table = page.get_by_role("region", name="Mixed")
    head = table.get_by_role("button", name="Amount")
    for expected in (ordered, ordered[::-1]):
        head.click()
        texts = table.locator("tbody tr").all_inner_texts()
        assert [each.replace("\u00a0", " ") for each in texts[: len(ordered)]] == expected
    page.get_by_label("Filter rows: Mixed").fill(ordered[0].split()[-1])
    page.get_by_label("Filter rows: Mixed").fill("")
    texts = table.locator("tbody tr").all_inner_texts()
    shown = [each.replace("\u00a0", " ") for each in texts[: len(ordered)]]
    assert shown == ordered[::-1], "a filter keeps the order"


def test_a_heat_map_of_many_cases_is_filtered_by_a_word(browser: Browser, website: Path) -> None:
    page = Visit(browser).open(website, "runs.html")
    page.evaluate(
        "document.querySelector('main').append(deadheat.blocks.render({kind: 'grid', name: 'many',"
        " caption: 'Many', corner: 'Case', columns: ['2.15.0'], rows: [...Array(12).keys()].map("
        "n => ({head: n % 2 ? `MLP, batch ${n}` : `ViT-B/16, batch ${n}`, cells: [n]}))}))"
    )
    table = page.get_by_role("region", name="Many")
    assert table.locator("tbody tr").count() == 12
    page.get_by_label("Filter rows: Many").fill("mlp 11")
    assert table.locator("tbody th").all_inner_texts() == ["MLP, batch 11"]
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV: Many").click()
    assert Path(download.value.path()).read_text() == "Case,2.15.0\nMLP, batch 11,11\n".replace(
        "MLP, batch 11", '"MLP, batch 11"'
    )
    page = Visit(browser).open(website, "index.html")
    assert page.locator("#grid").get_by_label("Filter rows").count() == 0, "it has filters"

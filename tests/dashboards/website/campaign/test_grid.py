"""The grid of a night in a real Chromium: its filters and shades, and the means of both nights."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from dashboard_nights import NIGHTS, name_night
from page_visits import Visit
from playwright.sync_api import Browser

from dashboards.formatting import format_size
from dashboards.website.files import WebsiteFiles
from dashboards.website.glossary import GLOSSARY

pytestmark = pytest.mark.browser


def test_filters_stay_in_the_address(browser: Browser, website: Path) -> None:
    visit = Visit(browser)
    page = visit.open(website, "index.html")
    batches = page.locator(".heat thead th").all_inner_texts()
    assert batches[1:] == ["4", "8", "32", "128"]  # as numbers
    assert page.locator(".heat tbody tr").count() == 5
    page.get_by_label("Model").select_option("MLP")
    assert page.locator(".heat tbody tr").count() == 2
    page.get_by_label("Use case").select_option("training")
    state = page.url.partition("#")[2]
    assert state == "model=MLP&use=training"
    page = visit.open(website, f"index.html#{state}")
    assert page.locator(".heat tbody th").all_inner_texts() == ["MLP, training, fp32"]
    page.get_by_label("Use case").select_option("all")
    page.get_by_label("Model").select_option("all")
    assert page.url.partition("#")[2] == ""
    assert page.locator(".heat tbody tr").count() == 5
    page = visit.open(website, "index.html#pair=eager&model=<img src=x>")
    assert "No pair fits these filters." in page.locator("#grid").inner_text()
    assert visit.complaints == []
    visit.context.close()


def test_the_night_before_is_one_of_the_same_profile(
    browser: Browser, website: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "site"
    shutil.copytree(website, copy)
    files = WebsiteFiles(copy)
    catalog, other = files.read("catalog"), name_night(NIGHTS - 2)
    for entry in catalog["campaigns"]:
        entry["profile"] = "breadth" if entry["name"] == other else entry["profile"]
    files.write("catalog", catalog)
    files.write(f"campaigns/{other}", {**files.read(f"campaigns/{other}"), "cells": []})
    files.flush()
    visit = Visit(browser)
    page = visit.open(copy, "index.html")
    old = page.locator(".pager").get_by_text("previous night").first
    assert old.get_attribute("href") == f"{name_night(NIGHTS - 3)}/index.html"
    assert "that count in both nights" in page.locator("#grid").inner_text()
    assert page.get_by_text("next night").count() == 0, "it is the newest"
    word = page.locator("#grid abbr", has_text="Geometric mean")
    assert word.get_attribute("title") == GLOSSARY["geometric mean"]
    assert word.get_attribute("tabindex") == "0", "a keyboard reaches it"
    old.click()
    new = page.locator(".pager").get_by_text("next night")
    assert new.get_attribute("href") == f"../{name_night(NIGHTS - 1)}/index.html"
    visit.context.close()


def test_the_geometric_mean_is_over_the_pairs_that_count_in_both_nights(
    browser: Browser, website: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "site"
    shutil.copytree(website, copy)
    files, visit = WebsiteFiles(copy), Visit(browser)
    names = [f"campaigns/{name_night(NIGHTS - back)}" for back in (1, 2)]
    night, before = map(files.read, names)
    numbers = list[list[str]]()
    for _ in range(2):
        shown = visit.open(copy, "index.html").locator("#grid p").first.inner_text()
        assert shown == _write_mean(night["cells"], before["cells"])
        numbers.append(re.findall(r"\d[\d.]*x", shown))
        void = max(filter(_has_mean, night["cells"]), key=lambda each: abs(each["log"]))
        void |= {"counts": False, **dict.fromkeys(("log", "low", "high"))}
        files.write(names[0], night)
        files.flush()
    assert [len(each) for each in numbers] == [2, 2]
    assert all(one != other for one, other in zip(*numbers, strict=True)), "it left both means"
    eager = visit.open(copy, "index.html#pair=eager").locator("#grid p").first
    assert eager.inner_text().startswith("No fair pair shown here counts in both nights")
    visit.context.close()


def _has_mean(cell: Mapping[str, Any]) -> bool:
    return cell["fair"] and cell["counts"]


def _write_mean(night: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> str:
    """The sentence of the page, from the cells of both nights."""
    sides = [{(each["key"], each["pair_id"]): each for each in cells} for cells in (night, before)]
    both = [key for key in sides[0] if all(key in side and _has_mean(side[key]) for side in sides)]
    means = list[str]()
    for cells in ([side[key] for key in both] for side in sides):
        log = fmean(each["log"] for each in cells)
        half = math.sqrt(sum((each["high"] - each["low"]) ** 2 / 4 for each in cells)) / len(cells)
        means.append(format_size(log, log - half, log + half))
    return (
        f"Geometric mean of the {len(both)} fair pairs shown here that count in both nights: "
        f"{means[0]}, the night before {means[1]}."
    )


def test_a_mostly_empty_grid_has_a_row_per_model(
    browser: Browser, website: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "site"
    shutil.copytree(website, copy)
    name = f"campaigns/{name_night(NIGHTS - 1)}"
    files = WebsiteFiles(copy)
    night = files.read(name)
    for number, cell in enumerate(night["cells"]):
        cell["batch"] = number
        cell["setting"] += f", kind {number}"
    files.write(name, night)
    files.flush()
    page = Visit(browser, 390).open(copy, "index.html")
    heads = page.locator(".families tbody th").all_inner_texts()
    assert heads == ["MLP", "ResNet-50", "ViT-B/16"]
    tiles = page.locator(".families .tiles li")
    assert tiles.count() == len([each for each in night["cells"] if each["fair"]])
    for tile in tiles.all():
        box = tile.bounding_box()
        assert box is not None and box["x"] + box["width"] <= 390
        assert re.search(r"kind \d+, batch \d+", tile.inner_text())


def test_every_shade_of_the_key_has_a_label(browser: Browser, website: Path) -> None:
    page = Visit(browser).open(website, "index.html")
    shades = [text.replace("\u2265 ", "") for text in page.locator(".key li").all_inner_texts()]
    sizes = ["3 %", "13 %", "1.4x", "2.2x"]
    assert shades == [*reversed(sizes), "same, or unknown (?)", *sizes]


def test_a_cell_whose_verdict_is_unknown_names_no_faster_side(
    browser: Browser, website: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "site"
    shutil.copytree(website, copy)
    for path in (copy / "data").rglob("*.js*"):
        text = path.read_text()
        path.write_text(re.sub(r'"verdict": ?"different"', '"verdict":"unknown"', text))
    page = Visit(browser).open(copy, "index.html")
    cells = [each.evaluate("it => it.outerHTML") for each in page.locator(".heat td").all()]
    unknown = [each for each in cells if ". unknown" in each]
    assert unknown
    for each in unknown:
        assert "x ?<" in each
        assert "l0" in each

"""Every page of the dashboard in a real Chromium: charts, links, comparisons, and hostile text."""

from __future__ import annotations

import html
import math
import re
from pathlib import Path

import pytest
from dashboard_nights import ADHOC, HOSTILE, NIGHTS, name_night
from manual import check_command
from page_visits import CRASHED, PAGES, Visit
from playwright.sync_api import Browser

from dashboards.formatting import format_size, format_speedup
from dashboards.website.files import POLICY, WebsiteFiles
from dashboards.website.pages import PAGES as SHELLS

pytestmark = pytest.mark.browser
NEWEST_STEP = ("0.12.1", "median_step_ns")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_shows_itself_offline_and_without_a_complaint(
    browser: Browser, website: Path, width: int, scheme: str
) -> None:
    visit = Visit(browser, width, scheme)
    for address, charts in PAGES.items():
        page = visit.open(website, address, charts)
        assert visit.complaints == [], address
        assert page.locator("h1").inner_text() not in ("", "Nothing to show here"), address
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        for place in range(charts):
            chart = page.locator(".chart").nth(place)
            assert chart.locator("svg path").count() > 3, address
            assert chart.get_attribute("aria-label"), address
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, a, select, input')].filter(each =>"
            " !(each.textContent.trim() || each.ariaLabel || each.labels?.length)).length"
        )
        assert unnamed == 0, address
        assert page.locator("img").count() == 0, address
    assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in visit.requests)
    visit.context.close()


def test_every_link_within_the_site_leads_to_a_page_with_content(
    browser: Browser, website: Path
) -> None:
    visit = Visit(browser)
    found: dict[str, str] = {}
    for address, charts in PAGES.items():
        page = visit.open(website, address, charts)
        hrefs = page.evaluate("[...document.querySelectorAll('main a')].map(each => each.href)")
        found |= dict.fromkeys(hrefs, address)
    files = {href.partition("#")[0] for href in found}
    assert all(Path(each.removeprefix("file://")).is_file() for each in files), found
    plain = {href for href in found if "=" not in href}
    found = {href: page for href, page in found.items() if "/downloads/" not in href}
    plain &= found.keys()
    # One per page and parameter; a page without parameters shows all its anchors at once.
    kinds = {href.partition("=")[0]: href for href in found if href not in plain}
    kinds |= {href.partition("#")[0]: href for href in plain}
    for href in kinds.values():
        page = visit.open(website, href.removeprefix(f"{website.as_uri()}/"))
        assert page.locator("h1").inner_text() != "Nothing to show here", (href, found[href])
        page.wait_for_load_state("networkidle")  # a chart that is left while it is drawn complains
        own = [each for each in plain if href in plain and _is_beside(each, href)]
        for anchor in filter(None, (each.partition("#")[2] for each in own)):
            assert page.locator(f'[id="{anchor}"]').count() == 1, (href, anchor)
    assert visit.complaints == []
    visit.context.close()


def _is_beside(one: str, other: str) -> bool:
    """Whether both are on the same page."""
    return one.partition("#")[0] == other.partition("#")[0]


def test_a_comparison_is_filtered_by_its_address(browser: Browser, website: Path) -> None:
    visit = Visit(browser)
    nights = f"a={name_night(3)}&b={name_night(NIGHTS - 1)}"
    page = visit.open(website, f"compare.html#{nights}")
    of_nights, of_versions = (page.locator(".framed").nth(place) for place in (0, 1))
    every = of_nights.locator("tbody tr").count()
    moved = ["gained" in each for each in of_nights.locator("tbody tr").all_inner_texts()]
    assert any(moved) and moved == sorted(moved, reverse=True), "what moved comes first"
    page.get_by_role("group", name="Filters").get_by_label("Model").select_option("MLP")
    page.wait_for_url("**model=MLP")
    page.get_by_label("Use case").select_option("training")
    page.wait_for_url("**use=training")
    for table in (of_nights, of_versions):
        table.locator("tbody tr").first.wait_for()
        assert {each.partition(",")[0] for each in table.locator("tbody th").all_inner_texts()} == {
            "MLP"
        }
    assert 0 < of_nights.locator("tbody tr").count() < every
    state = page.url.partition("#")[2]
    assert state == f"{nights}&model=MLP&use=training"
    page = visit.open(website, f"compare.html#{state}&metric=cold_compile_s")
    assert page.get_by_label("Metric").input_value() == "cold_compile_s"
    verdicts = of_nights.locator("tbody td:last-child").all_inner_texts()
    assert set(verdicts) <= {"no interval", "only in one of them", "void in one of them"}
    assert "no interval" in verdicts
    page.get_by_label("Use case").select_option("all")
    page.wait_for_url(f"**#{nights}&model=MLP&metric=cold_compile_s")
    page = visit.open(website, f"compare.html#{nights}&model=none")
    assert "No pair fits these filters." in page.locator("main").inner_text()
    assert visit.complaints == []
    visit.context.close()


def test_on_a_phone_every_answer_is_in_sight(browser: Browser, website: Path) -> None:
    visit = Visit(browser, 390)
    for address in ("index.html", "guide.html", "events.html", "releases.html"):
        page = visit.open(website, address)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        answers = page.locator(".lead-cell, .heat td a, .heat td.level")
        assert answers.count() > 0, address
        for box in (each.bounding_box() for each in answers.all()):
            assert box is not None and box["x"] + box["width"] <= 390, address
        name, lead = page.locator(".cards tbody tr:has(.lead-cell)").first.evaluate(
            "row => [row.cells[0], row.querySelector('.lead-cell')].map(each =>"
            " each.getBoundingClientRect().top)"
        )
        others = page.locator(".cards tbody tr:has(.lead-cell)").first.locator("td:not(.lead-cell)")
        below = [box["y"] for box in (each.bounding_box() for each in others.all()) if box]
        assert name < lead and all(each > lead for each in below), address
    visit.context.close()


def test_scripts_round_as_the_rest_does(browser: Browser, website: Path) -> None:
    page = Visit(browser).open(website, "index.html")
    cases = [
        (math.log(middle), math.log(middle) - half, math.log(middle) + half)
        for middle in (0.0713, 0.19, 0.994, 1.0, 1.42, 2.3, 17.2, 365.0)
        for half in (0.0, 0.0004, 0.003, 0.02, 0.3, 2.0)
    ]
    found = page.evaluate(
        "cases => cases.map(each => deadheat.speedup(...each)).map(each => [each.size, each.text])",
        cases,
    )
    assert found == [[format_size(*each), format_speedup(*each)] for each in cases]
    alone = page.evaluate("deadheat.speedup(Math.log(23.456)).size")
    assert alone == format_size(math.log(23.456), math.nan, math.nan)
    small = page.evaluate("deadheat.speedup(Math.log(0.0042)).size")
    assert small == format_size(math.log(0.0042), math.nan, math.nan) == "0.004x"


def test_a_long_table_shows_its_rest_on_demand(browser: Browser, website: Path) -> None:
    page = Visit(browser).open(website, "runs.html")
    page.evaluate(
        "document.querySelector('main').append(deadheat.blocks.render({kind: 'table', name: 'long',"
        " caption: 'Long', columns: [{key: 'n', name: 'Number'}],"
        " rows: [...Array(200).keys()].map(n => ({n}))}))"
    )
    table = page.get_by_role("region", name="Long")
    assert table.locator("tbody tr").count() == 50
    page.get_by_label("Filter rows: Long").fill("199")
    assert table.locator("tbody tr").all_inner_texts() == ["199"]
    page.get_by_label("Filter rows: Long").fill("")
    page.get_by_role("button", name="Show all 200 rows").click()
    assert table.locator("tbody tr").count() == 200


def test_a_release_keeps_its_certificates_after_a_run_of_one_case(website: Path) -> None:
    rows = WebsiteFiles(website).read("releases")
    newest = [row for row in rows if (row["a_version"], row["metric"]) == NEWEST_STEP]
    assert len({row["words"] for row in newest}) == 6
    moved = {row["words"]: row["certificate"] for row in newest}
    assert moved["MLP, training, batch 128, fp32"] == "worse"


def test_the_night_leads_with_its_confirmed_change(website: Path) -> None:
    night = WebsiteFiles(website).read(f"campaigns/{name_night(NIGHTS - 1)}")
    about = "The step time ratio of MLP, training, batch 128, fp32"
    assert night["sentence"] == f"{about} changed by \u22125.8 %; culprit: JAX."
    quiet = WebsiteFiles(website).read(f"campaigns/{name_night(3)}")
    assert quiet["sentence"] == "Nothing changed in 6 cases."
    first = WebsiteFiles(website).read(f"campaigns/{name_night(0)}")
    assert first["sentence"].startswith("First night of this profile on this device: 1 case")
    run = WebsiteFiles(website).read(f"campaigns/{ADHOC}")
    assert run["sentence"].startswith("Nothing counts: in 5 of 5 pairs outputs differ")
    assert f"{ADHOC}/waterfall.html" in str(run["top"])
    catalog = WebsiteFiles(website).read("catalog")
    assert catalog["newest_night"] == name_night(NIGHTS - 1)  # not the run, which is newer


def test_the_commands_of_an_event_can_be_run(website: Path) -> None:
    page = WebsiteFiles(website).read("pages/events")
    (evidence,) = [each for each in page["blocks"] if each.get("id") == "evidence"]
    (event,) = [each for each in evidence["blocks"] if each["id"] == "event-1"]
    (code,) = [each for each in event["blocks"] if each["kind"] == "code"]
    commands = code["text"].splitlines()
    assert [each.split()[1] for each in commands] == 2 * ["compare", "bisect"] + ["events"]
    assert "--a jax==0.12.0 --b jax==0.12.1" in commands[0]
    for command in commands:
        check_command(command)


def test_hostile_text_stays_text(browser: Browser, website: Path) -> None:
    visit = Visit(browser)
    for address in ("index.html", "events.html", f"duel.html#run={CRASHED}"):
        page = visit.open(website, address)
        assert HOSTILE in page.locator("main").evaluate("each => each.textContent"), address
        assert page.locator("main img, main script").count() == 0
    for state in ("run=../../catalog", "run=%3Cscript%3E", "run=javascript:alert(1)"):
        page = visit.open(website, f"duel.html#{state}")
        assert page.locator("h1").inner_text() == "Nothing to show here"
    visit.context.close()


def test_every_shell_has_the_strict_policy_and_nothing_inline(website: Path) -> None:
    assert POLICY.startswith("default-src 'none'; script-src 'self' file:; style-src 'self' file:;")
    assert not re.search(r"unsafe-|http|\*", POLICY)
    shells = [*(website / each.file for each in SHELLS), *website.glob("*/index.html")]
    assert len(shells) > len(SHELLS) + NIGHTS
    for path in shells:
        text = path.read_text()
        (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
        assert html.unescape(policy) == POLICY, path
        assert text.index(policy) < min(map(text.index, ("<link", "<script"))), path
        assert not re.search(r"<style|<script(?![^>]*\ssrc=)|\s(style|on\w+)=", text), path


INLINE = """() => {
  const add = (tag, text) => {
    const element = document.createElement(tag);
    element.textContent = text;
    return document.body.appendChild(element);
  };
  add("script", "window.ran = 1");
  const button = add("button", "");
  button.setAttribute("onclick", "window.clicked = 1");
  button.click();
  return [window.ran ?? null, window.clicked ?? null];
}"""


def test_an_inline_script_does_not_run(browser: Browser, website: Path) -> None:
    visit = Visit(browser)
    assert visit.page.evaluate(INLINE) == [1, 1], "without the policy it runs"
    page = visit.open(website, "index.html")
    assert page.evaluate(INLINE) == [None, None]
    assert any("Content Security Policy" in each for each in visit.complaints)
    visit.context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_each_question_is_answered_in_two_clicks_from_tonight(
    browser: Browser, website: Path, width: int
) -> None:
    visit = Visit(browser, width)
    nav, contents = "header nav", "nav.contents"
    for first, second, shown in (
        ("main a[href$='event-1']", None, "culprit: JAX"),  # what changed, and who did it
        (f"{nav} a[href$='releases.html']", None, "JAX: version by case"),
        (".heat td:not(.void) a", f"{contents} a[href$='at=times']", "rounds of each start"),
        ("main a[href$='voids']", None, "outputs differ"),  # why a pair is missing
        (
            f"{nav} a[href$='health.html']",
            f"{contents} a[href$='error-rates']",
            "no calibration run was judged",
        ),
    ):
        page = visit.open(website, "index.html")
        page.locator(first).first.click()
        if second is not None:
            page.locator(second).click()
        page.get_by_text(shown).first.wait_for()
        assert page.get_by_text(shown).first.is_visible(), first
    assert visit.complaints == []
    visit.context.close()


def test_compare_begins_with_the_newest_night_and_versions(browser: Browser, website: Path) -> None:
    visit = Visit(browser)
    page = visit.open(website, "compare.html")
    first, second = page.get_by_role("group", name="Two nights").locator("select").all()
    versions = page.get_by_role("group", name="Two versions")
    framework, _old, new = versions.locator("select").all()
    assert first.input_value() == name_night(NIGHTS - 2)
    assert second.input_value() == name_night(NIGHTS - 1)
    assert page.locator("table").count() == 2
    assert not re.search(r"[+\u2212]0(\.0+)? %", page.locator("main").inner_text())
    framework.select_option("jax")
    page.wait_for_url("**#framework=jax")
    assert new.input_value() == "0.12.1"
    assert visit.complaints == []
    visit.context.close()


def test_cases_are_listed_with_batches_in_order(website: Path) -> None:
    words = [each["words"] for each in WebsiteFiles(website).read("catalog")["cases"]]
    batches = [re.findall(r"inference, batch (\d+)", each) for each in words if "ResNet" in each]
    numbers = [int(each[0]) for each in batches if each]
    assert len(numbers) > 1 and numbers == sorted(numbers)
    assert sorted(map(str, numbers)) != list(map(str, numbers)), "as words they sort otherwise"


def test_a_table_sorts_and_downloads(browser: Browser, website: Path) -> None:
    visit = Visit(browser)
    page = visit.open(website, "runs.html")
    first = page.locator("#nights tbody th").first
    newest = first.inner_text()
    page.get_by_role("button", name="Night", exact=True).click()
    assert first.inner_text() < newest
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV: Newest first.").first.click()
    text = Path(download.value.path()).read_bytes().decode()
    assert text.startswith("Night,Duels,Pairs that count") and text.count("\r\n") == NIGHTS + 1
    visit.context.close()

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from sample_frames import GENERATED_AT, HOSTILE, hostile_frames, nightly_campaign, sample_frames

from dashboards.campaign_page import publish_site

pytestmark = pytest.mark.browser
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("wanted chromium on PATH, found none; install it")
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    return publish_site(
        sample_frames(), folder, campaign=nightly_campaign(0), generated_at=GENERATED_AT
    )


class Visit:
    """A page with a record of its requests and errors."""

    def __init__(self, browser: Browser, path: Path, width: int, scheme: str) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(f"html[data-charts={scheme}]")


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (320, "dark")]
)
def test_the_page_works_offline_at_every_width(
    browser: Browser, site: Path, width: int, scheme: str
) -> None:
    visit = Visit(browser, site, width, scheme)
    assert all(url.startswith(("file:", "data:", "blob:")) for url in visit.requests)
    assert visit.complaints == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    charts = visit.page.locator(".chart")
    assert charts.count() == 5
    for place in range(charts.count()):
        assert charts.nth(place).locator("svg .mark-symbol path").count() > 0
        assert charts.nth(place).locator("svg").get_attribute("aria-label") != ""
    visit.context.close()


def test_every_table_fits_a_laptop(browser: Browser, site: Path) -> None:
    visit = Visit(browser, site, 1280, "light")
    visit.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    cut = visit.page.evaluate(
        "[...document.querySelectorAll('div.table')]"
        ".filter(each => each.scrollWidth > each.clientWidth).map(each => each.ariaLabel)"
    )
    assert cut == []
    visit.context.close()


def test_charts_follow_a_change_to_dark(browser: Browser, site: Path) -> None:
    visit = Visit(browser, site, 800, "light")
    label = visit.page.locator("#frameworks svg .mark-text text").first
    light = label.get_attribute("fill")
    visit.page.emulate_media(color_scheme="dark")
    visit.page.wait_for_selector("html[data-charts=dark]")
    assert label.get_attribute("fill") != light
    assert visit.page.locator("#frameworks svg").count() == 1
    visit.context.close()


def test_labels_of_the_forest_plot_stay_inside_on_a_phone(browser: Browser, site: Path) -> None:
    visit = Visit(browser, site, 390, "light")
    boxes = visit.page.evaluate(
        "[...document.querySelectorAll('.chart svg text')].map(text =>"
        " { const box = text.getBoundingClientRect(); return [box.left, box.right]; })"
    )
    assert min(left for left, _ in boxes) >= 0
    assert max(right for _, right in boxes) <= 390
    visit.context.close()


def test_hostile_names_run_nothing(browser: Browser, tmp_path: Path) -> None:
    path = publish_site(hostile_frames(), tmp_path, campaign=HOSTILE, generated_at=GENERATED_AT)
    visit = Visit(browser, path, 800, "light")
    visit.page.locator("#frameworks svg .mark-symbol path").last.hover()
    visit.page.wait_for_timeout(200)
    assert visit.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in visit.requests)
    assert visit.page.locator("img").count() == 0
    visit.context.close()

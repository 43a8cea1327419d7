"""Prefect's UI in Chromium: people sign in, send the form of a comparison, read the answer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page


def _field(page: Page, label: str, nth: int = 0) -> Any:
    named = f".schema-form-property:has(> .p-label__header span:text-is('{label}'))"
    return page.locator(named).nth(nth)


def _choose(page: Page, label: str, value: str, nth: int = 0) -> None:
    _field(page, label, nth).locator(".p-select-button__control").first.focus()
    page.keyboard.press("ArrowDown")
    page.locator(".p-select-options").get_by_text(value, exact=True).last.click()


def sign_in(page: Page, ui: str, auth: str) -> None:
    """Give the server's secret, which it asks for first."""
    page.goto(ui)
    secret = page.locator("input[type=password]")
    secret.wait_for(timeout=60_000)
    photograph(page, "sign-in", height=520)
    secret.fill(auth)
    page.get_by_role("button", name="Login").click()
    page.get_by_text("Deployments", exact=True).first.wait_for(timeout=60_000)


def fill_in(page: Page) -> None:
    """Ask something."""
    page.get_by_text("Workload", exact=True).wait_for(timeout=60_000)
    page.get_by_text("newest, previous, or any published version").nth(1).wait_for()
    _choose(page, "Workload", "mlp")
    _choose(page, "Use case", "infer")
    _choose(page, "Batch size (Optional)", "1")
    for label, number in (("Starts", "3"), ("Maximum starts", "3"), ("Budget", "0.1")):
        _field(page, f"{label} (Optional)").locator("input").fill(number)
    _field(page, "Ceilings (Optional)").locator(".p-toggle__control").click()
    photograph(page, "form", at=page.get_by_text("Workload", exact=True))


def write_version(page: Page, text: str) -> Locator:
    """Write PyTorch's version, as one that is not listed; its field."""
    version = _field(page, "Version (Optional)", nth=1)
    version.get_by_role("button", name="Any published").click()
    version.locator("textarea").fill(text)
    return version


def read_answer(page: Page, run: str) -> str:
    """Its heading, once verdict and forest plot have shown on the run's page. Where others had the
    CPUs meanwhile, that is reported instead."""

    def open_artifact(name: str) -> None:
        page.goto(run)
        page.get_by_text("Artifacts", exact=True).last.click(timeout=60_000)
        page.locator("a[href*='artifact']", has_text=name).first.click(timeout=60_000)

    open_artifact("answer-compare-mlp")
    verdict = page.locator("h2", has_text="fast").first.inner_text(timeout=60_000)
    if verdict.endswith("is unknown"):
        page.get_by_text("left out as degraded").first.wait_for()
        return verdict
    page.get_by_text("Verdict: different").wait_for()
    photograph(page, "answer", height=900)
    open_artifact("forest-compare-mlp")
    plot = page.locator("img[src^='data:image/svg+xml']")
    plot.wait_for(timeout=60_000)
    assert plot.evaluate("each => each.decode().then(() => each.naturalWidth)") > 600
    assert verdict in page.locator("body").inner_text()
    photograph(page, "forest", height=520)
    return verdict


def photograph(page: Page, name: str, height: int = 1150, at: Locator | None = None) -> None:
    """For the manual: kept where DEADHEAT_TEST_PICTURES names a folder, such as docs/pictures."""
    if folder := os.environ.get("DEADHEAT_TEST_PICTURES"):
        size = page.viewport_size
        page.set_viewport_size({"width": 1100, "height": height})
        if at is not None:
            at.scroll_into_view_if_needed()
        page.wait_for_timeout(1000)  # until what moves has come to rest
        page.screenshot(path=Path(folder) / f"{name}.png")
        assert size is not None
        page.set_viewport_size(size)


def submit(page: Page) -> int:
    """The status of the server's answer; while its SQLite is busy, we ask again, as people do."""
    while True:
        with page.expect_response(lambda each: "create_flow_run" in each.url) as answered:
            page.get_by_role("button", name="Submit").click()
        if answered.value.status != 503:
            return answered.value.status

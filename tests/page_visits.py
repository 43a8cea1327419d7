"""A dashboard in a real Chromium: its pages, and visits that record requests and errors."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dashboard_nights import NIGHTS, name_night
from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)
CASE = "mlp.train_b128.00112233445566ff"
DUEL = f"{(NIGHTS - 1) * 100 + 2:016x}"
"""Of the last night, the training of the MLP."""
CRASHED = f"{(NIGHTS - 1) * 100 + 5:016x}"
PAGES = {
    "index.html": 0,
    f"{name_night(3)}/index.html": 0,
    "series.html": 0,
    f"series.html#case={CASE}": 1,
    "events.html": 0,
    "releases.html": 0,
    "guide.html": 0,
    "operations.html": 0,
    "glossary.html": 0,
    "health.html": 0,
    "runs.html": 0,
    f"duel.html#run={DUEL}": 3,
    f"duel.html#run={CRASHED}": 3,
    f"compare.html#a={name_night(3)}&b={name_night(NIGHTS - 1)}": 0,
}
"""How many charts each page draws."""


@contextmanager
def launch_browser() -> Iterator[Browser]:
    """Chromium, which CI must have; elsewhere its tests are skipped without it."""
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("wanted chromium on PATH, found none; install it")
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        yield browser
        browser.close()


class Visit:
    """A page with a record of its requests and errors."""

    def __init__(self, browser: Browser, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on(
            "console", lambda text: self.complaints.append(f"{self.page.url}: {text.text}")
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))

    def open(self, website: Path, address: str, charts: int = 0) -> Page:
        file, _, state = address.partition("#")
        self.page.goto("about:blank")
        self.page.goto((website / file).as_uri() + (f"#{state}" if state else ""))
        self.page.wait_for_selector("html[data-ready]")
        if charts:
            self.page.locator(".chart[data-drawn]").nth(charts - 1).wait_for(state="attached")
        return self.page

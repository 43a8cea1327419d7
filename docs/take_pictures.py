"""Takes the manual's pictures of the dashboard of a demo:

deadheat demo --last 2026-11-23 && python docs/take_pictures.py demo/site
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parent / "pictures"
SERIES = "series.html#case=vit_b_16.infer_b128_bf16.decade0ffacade00&metric=cold_compile_s"
PICTURES = {
    "tonight": ("index.html", "header", 960),
    "series": (SERIES, "h1", 640),
    "event": ("events.html#event-1", "#event-1", 560),
    "voids": ("index.html#voids", "#voids", 300),
    "raw-times": ("index.html", "#times", 700),
}
"""Of each picture its page, the element at its top, and its height in pixels."""


def take(page: Page, site: Path, name: str) -> None:
    """Write one picture."""
    address, top, height = PICTURES[name]
    file, _, state = address.partition("#")
    page.goto("about:blank")
    page.goto(f"{(site / file).absolute().as_uri()}#{state}")
    page.wait_for_selector("html[data-ready]")
    if name == "raw-times":
        page.locator(".heat td.level a").first.click()
    element = page.locator(top).first
    element.wait_for()
    for index in range(page.locator(".chart").count()):
        page.locator(".chart[data-drawn]").nth(index).wait_for(state="attached")
    begin = element.evaluate("each => each.getBoundingClientRect().top + scrollY")
    clip = {"x": 0, "y": max(0, begin - 16), "width": 1280, "height": height}
    page.screenshot(path=FOLDER / f"{name}.png", clip=clip, full_page=True)  # pyright: ignore


def main(site: Path) -> None:
    """Write every picture."""
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for name in PICTURES:
            take(page, site, name)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

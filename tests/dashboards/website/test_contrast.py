"""Text stands out from what is behind it: WCAG 2.2, contrast (minimum), level AA."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_visits import PAGES, Visit
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
FIND_WEAK = """() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
    return { rgb: [r, g, b], a: text === "none" || text === "transparent" ? 0 : a };
  };
  const over = (top, below) =>
    top.rgb.map((each, place) => top.a * each + (1 - top.a) * below[place]);
  const light = (rgb) => rgb.map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const found = parse(getComputedStyle(each).backgroundColor);
      if (found.a) layers.push(found);
      if (found.a === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const contrast = (element, style) => {
    const ground = behind(element);
    const ink = over(parse(element.closest("svg") ? style.fill : style.color), ground);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = { seen: 0, weak: [] };
  while (walker.nextNode()) {
    const { parentElement: element, textContent } = walker.currentNode;
    const text = textContent.trim();
    if (!text || !element.checkVisibility({ opacityProperty: true })) continue;
    if (["SCRIPT", "STYLE", "OPTION"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = contrast(element, style);
    found.seen += 1;
    if (ratio < (isLarge ? 3 : 4.5)) found.weak.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(browser: Browser, website: Path, scheme: str) -> None:
    visit = Visit(browser, scheme=scheme)
    found = dict[str, list[str]]()
    for address, charts in PAGES.items():
        page = visit.open(website, address, charts)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        of_page = page.evaluate(FIND_WEAK)
        assert of_page["seen"] > 10, address
        found |= {address: of_page["weak"]} if of_page["weak"] else {}
    assert found == {}
    visit.context.close()

"""The table of the dashboard's pages: adding one is a row here, and a script or blocks to show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Page:
    """A file in the dashboard's root. `nav` is its entry in the navigation; empty = it has none.

    `script` draws it; `blocks_page.js` shows the blocks of `data/pages/STEM.js`.
    """

    file: str
    title: str
    nav: str = ""
    script: str = "blocks_page.js"

    @property
    def stem(self) -> str:
        """The name of its data: `guide` of `guide.html`."""
        return self.file.removesuffix(".html")


TONIGHT = Page(file="index.html", title="Tonight", nav="Tonight", script="tonight_page.js")
OPERATIONS_PAGE = Page(file="operations.html", title="Operations")
PAGES = (
    TONIGHT,
    Page(file="series.html", title="Series", nav="Series", script="series_page.js"),
    Page(file="events.html", title="Events", nav="Events"),
    Page(file="releases.html", title="Releases", nav="Releases"),
    Page(file="guide.html", title="Which framework for me?", nav="Guide"),
    OPERATIONS_PAGE,
    Page(file="health.html", title="Health", nav="Health"),
    Page(file="runs.html", title="Nights and runs", nav="Runs"),
    Page(file="glossary.html", title="Glossary"),
    Page(file="duel.html", title="Duel", script="duel_page.js"),
    Page(file="compare.html", title="Compare", script="compare_page.js"),
)
NAVIGATION = tuple(each for each in PAGES if each.nav)

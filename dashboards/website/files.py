"""The dashboard's files: data that pages load on demand, what all pages share, and each page's
shell."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchcore.errors import DamagedFileError
from benchcore.protocol import name_part
from dashboards.templating import escape_json, open_templates, vega_bundle
from dashboards.website.glossary import GLOSSARY
from dashboards.website.pages import NAVIGATION, PAGES, Page
from dashboards.website.specifications import SPECS, VEGA_LITE

_FOLDER = Path(__file__).parent
_ASSETS = _FOLDER / "assets"
SCRIPTS = ("core.js", "blocks.js", "tables.js", "charts.js", "filters.js")
"""On every page, in this order; a page's own script follows."""
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; "
    "img-src 'self' file: data: blob:; base-uri 'none'; form-action 'none'"
)
_ONCE = ("duels/", "campaigns/")
"""Data of one campaign only, so not held in memory while a whole dashboard is built."""
_BEFORE, _AFTER = "deadheat.receive(", ");\n"


@dataclass
class WebsiteFiles:
    """The files of one dashboard. Data is read once and written by `flush`, only where it changed.
    Where many campaigns are added, `flush_own` writes what no other one changes."""

    root: Path
    _read: dict[str, Any] = field(default_factory=dict[str, Any])
    _changed: set[str] = field(default_factory=set[str])

    def read(self, name: str) -> Any:
        """What `data/NAME.js` holds; None if there is no such file. Raises DamagedFileError if it
        can't be read."""
        if name not in self._read:
            path = self.path_of(name)
            self._read[name] = _parse(path) if path.is_file() else None
        return self._read[name]

    def write(self, name: str, value: Any) -> None:
        """Let `data/NAME.js` hold the value from the next `flush` on."""
        self._read[name] = value
        self._changed.add(name)

    def flush(self) -> int:
        """Write what changed, each file as a whole; the number of bytes."""
        return self._flush(self._changed)

    def flush_own(self) -> int:
        """Write only the changed files of a single campaign."""
        return self._flush({each for each in self._changed if each.startswith(_ONCE)})

    def _flush(self, changed: set[str]) -> int:
        num_bytes = 0
        for name in sorted(changed):
            value = self._read[name]
            body = f"{_BEFORE}{escape_json(name)},\n{escape_json(value)}{_AFTER}"
            replace_text(self.path_of(name), body)
            num_bytes += len(body)
            if name.startswith(_ONCE):
                del self._read[name]
        self._changed -= changed
        return num_bytes

    def path_of(self, name: str) -> Path:
        """Where the data of this name is."""
        return self.root / "data" / f"{name}.js"


def _parse(path: Path) -> Any:
    try:
        text = path.read_text("utf-8")
        return json.loads(text[len(_BEFORE) : -len(_AFTER)].partition(",\n")[2])
    except ValueError as error:
        raise DamagedFileError(
            f"wanted data of the dashboard in {str(path)!r}, but {error}; run `deadheat report "
            "CAMPAIGN`"
        ) from error


def replace_text(path: Path, text: str) -> bool:
    """Write the file as a whole, unless it has this text; whether it was written."""
    content = text.encode("utf-8")
    if path.is_file() and path.read_bytes() == content:
        return False
    part = name_part(path)
    try:
        part.write_bytes(content)
    except FileNotFoundError:  # the first file of its folder: most have one
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
    part.replace(path)
    return True


def write_shared(root: Path, notice: str) -> None:
    """What all pages share: scripts, style, Vega, chart specifications, and the pages' shells.

    Every page begins with `notice`, unless it is empty.
    """
    for path in sorted(_ASSETS.iterdir()):
        replace_text(root / "assets" / path.name, path.read_text("utf-8"))
    _write_vega(root / "assets" / "vega.js")
    shared = {"specs": SPECS, "glossary": GLOSSARY}
    body = "".join(f"deadheat.{key} = {escape_json(value)};\n" for key, value in shared.items())
    replace_text(root / "assets" / "shared.js", body)
    for each in PAGES:
        replace_text(root / each.file, render_shell(each, notice=notice))


def _write_vega(path: Path) -> None:
    """Unless this version's bundle is there: to build one takes seconds."""
    first = f"// Vega-Lite {VEGA_LITE}, bundled by vl-convert {version('vl-convert-python')}\n"
    if path.is_file():
        with path.open("rb") as file:
            if file.readline() == first.encode():
                return
    replace_text(path, f"{first}(function () {{\n{vega_bundle()}\n}})();\n")


def render_shell(page: Page, *, root: str = "", campaign: str = "", notice: str = "") -> str:
    """A page without its content, which its script loads. `root`: the path to the dashboard's
    root."""
    return (
        open_templates(_FOLDER)
        .get_template("page.html.j2")
        .render(
            page=page,
            navigation=NAVIGATION,
            root=root,
            campaign=campaign,
            notice=notice,
            policy=POLICY,
            scripts=[*SCRIPTS, "shared.js", page.script],
        )
    )

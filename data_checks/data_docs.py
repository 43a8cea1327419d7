"""Great Expectations' Data Docs of a campaign: a page per suite, which opens without a network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path

from great_expectations.core import ExpectationSuiteValidationResult
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view.view import DefaultJinjaPageView

from benchcore.protocol import name_part

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_HEAD = f"""<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="referrer" content="no-referrer">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 1rem auto;
  padding: 0 1rem; }}
table {{ border-collapse: collapse; }}
td, th {{ border: 1px solid #8888; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }}
button, label.btn, footer, .modal, .navbar, .breadcrumb, nav {{ display: none; }}
</style>
"""
_FETCHED = re.compile(
    r"<script\b.*?</script>|<link\b[^>]*>|<img\b[^>]*>", re.DOTALL | re.IGNORECASE
)
_HANDLER = re.compile(r'\son[a-z]+="[^"]*"')
_ELSEWHERE = re.compile(r'href="(?!#)[^"]*"')
"""Great Expectations' own site has these pages; here is an index only."""

Results = Mapping[str, ExpectationSuiteValidationResult]


def write_data_docs(folder: Path, results: Results, without_rows: Sequence[str] = ()) -> None:
    """Write a page per suite, by its name, and `index.html`, which also lists the suites that had
    nothing to check. An earlier check's are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.html"):
        path.unlink()
    for name, result in results.items():
        document = ValidationResultsPageRenderer().render(result)
        _write(folder / f"{name_page(name)}.html", close_page(_view().render(document)))
    _write(folder / "index.html", _write_index(results, without_rows))


@cache
def _view() -> DefaultJinjaPageView:
    """One for all pages: each view compiles Great Expectations' templates."""
    return DefaultJinjaPageView()


def name_page(suite: str) -> str:
    """The file of a suite without its ending: `nightly-judged-physics`."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", suite)


def close_page(html: str) -> str:
    """The page without what it would fetch or run. The policy holds where this misses something."""
    found = _HANDLER.sub("", _ELSEWHERE.sub('href="index.html"', _FETCHED.sub("", html)))
    return found.replace("<head>", f"<head>\n{_HEAD}", 1)


def _write_index(results: Results, without_rows: Sequence[str]) -> str:
    checked = [
        f'<tr><td><a href="{name_page(name)}.html">{escape(name)}</a></td>'
        f"<td>{'passed' if result.success else 'failed'}</td></tr>"
        for name, result in results.items()
    ]
    others = [f"<tr><td>{escape(name)}</td><td>no rows</td></tr>" for name in without_rows]
    rows = "\n".join([*checked, *others])
    return (
        f'<!doctype html>\n<html lang="en"><head>\n<meta charset="utf-8">\n{_HEAD}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>Data Docs</title></head><body><h1>Data Docs</h1>\n"
        f"<table><tr><th>Suite</th><th>Result</th></tr>\n{rows}\n</table></body></html>\n"
    )


def _write(path: Path, text: str) -> None:
    part = name_part(path)
    part.write_text(text, encoding="utf-8")
    part.replace(path)

"""What pages share: templates, JSON within scripts, Vega; and the whole page of a study."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from dashboards.website.specifications import VEGA_LITE

_TEMPLATES = Path(__file__).parent / "study_templates"


def render_template(name: str, specs: Mapping[str, Mapping[str, Any]], **values: Any) -> str:
    """The HTML of a study's page. `specs` maps places in the page to Vega-Lite specifications.

    Every string in `values` is escaped. The page holds its style and scripts and loads nothing.
    """
    scripts = [vega_bundle(), _read_template("charts.js")]
    return (
        open_templates(_TEMPLATES)
        .get_template(name)
        .render(
            charts_json=Markup(escape_json(specs)),
            style=Markup(_read_template("style.css")),
            scripts=[Markup(script) for script in scripts],
            policy=_content_policy(scripts),
            **values,
        )
    )


@cache
def open_templates(folder: Path) -> jinja2.Environment:
    """A folder's templates, which escape every string and refuse a missing one."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def escape_json(value: object) -> str:
    """JSON that is safe inside a script: no `<`, `>`, `&`, line separators or NaN."""
    # ASCII only. Looking for circles takes a tenth of the time; one is a RecursionError.
    text = json.dumps(value, allow_nan=False, check_circular=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script, in the version that altair writes for."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    assert "</script" not in bundle.lower()
    assert "<!--" not in bundle
    return bundle


def _content_policy(scripts: list[str]) -> str:
    """Allow only our own scripts, by their hashes, and no request to the network.

    Vega compiles its expressions with Function, hence unsafe-eval.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src 'unsafe-eval' {hashes}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _read_template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")

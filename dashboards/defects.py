"""The page of a defect study: how far each known error moves the ratio, and who catches it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
from markupsafe import Markup

from dashboards.publish import (
    content_policy,
    escape_json,
    jinja_environment,
    read_template,
    vega_bundle,
    write_page,
)
from dashboards.ratios import FRAMEWORK_DIRECTIONS, forest_chart
from dashboards.wording import FRAMEWORKS, NOT_MEASURED, format_factor, format_speedup

_FAIR, _CAUGHT, _MISSED = "compiled", "eager", "other"
"""The forest's colors and shapes: of the fair pair, of what a guard catches, and of the rest."""


def publish_study(found: Mapping[str, Any], folder: Path) -> Path:
    """Write `defects.html` into the folder, whole or not at all; returns its path. `found` is what
    `benchcore.defect_study.summarise_study` found."""
    return write_page(render_study(found), folder, "defects.html")


def render_study(found: Mapping[str, Any]) -> str:
    """The page's text. Every string of the study is escaped."""
    scripts = [vega_bundle(), read_template("charts.js")]
    charts = {}
    if found["fair"]["speedup"] is not None:
        charts["defects"] = study_chart(found).to_dict()
    return (
        jinja_environment()
        .get_template("defects.html.j2")
        .render(
            found=found,
            case=_name_case(found),
            versions=" and ".join(
                f"{FRAMEWORKS[side]} {version}" for side, version in found["versions"].items()
            ),
            headline=write_headline(found),
            disturbed=f"{found['disturbed']}. {DISTURBED}" if found["disturbed"] else "",
            fair=say_ratio(found["fair"]),
            switches=[_row(each) for each in found["switches"]],
            rungs=[_row(each) for each in found["rungs"]],
            here="a CPU; not run on a GPU" if found["device_kind"] == "cpu" else "a GPU",
            description=_DESCRIPTION if charts else "",
            charts_json=Markup(escape_json(charts)),
            style=Markup(read_template("style.css")),
            scripts=[Markup(script) for script in scripts],
            policy=content_policy(scripts),
        )
    )


DISTURBED = (
    "No block of the fair pair was left alone, so that all blocks are used here: these numbers "
    "show directions, and are no measurement. Ask again when the machine is quiet."
)
_DESCRIPTION = (
    "Speedup of JAX over PyTorch with each error alone, with intervals, on a log axis, and the "
    "fair pair's as a line. The tables below hold the same numbers."
)


def write_headline(found: Mapping[str, Any]) -> str:
    """The fair number, and how far errors alone would carry it."""
    fair, case = found["fair"], _name_case(found)
    if fair["speedup"] is None:
        return f"The fair pair was {NOT_MEASURED} on {case}"
    measured = [each for each in found["switches"] if each["speedup"] is not None]
    says = f"Run fairly, JAX is {say_ratio(fair)} as fast as PyTorch on {case}"
    if not measured:
        return says
    low, high = (pick(each["speedup"] for each in measured) for pick in (min, max))
    return (
        f"{says}; one error at a time, the same machine says {format_factor(low)} to "
        f"{format_factor(high)}"
    )


def say_ratio(ratio: Mapping[str, Any], keys: Sequence[str] = ("speedup", "low", "high")) -> str:
    """`1.21x (1.18 to 1.24)` of speedups."""
    if ratio[keys[0]] is None:
        return NOT_MEASURED
    logs = [math.nan if ratio[key] is None else math.log(ratio[key]) for key in keys]
    return format_speedup(logs[0], logs[1], logs[2])


def say_move(each: Mapping[str, Any]) -> str:
    """How far from the fair ratio: `0.52x (0.50 to 0.54)`."""
    return say_ratio(each, ("moved", "moved_low", "moved_high"))


def _name_case(found: Mapping[str, Any]) -> str:
    return f"{found['workload']} {found['case']}"


def _row(each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": each["title"],
        "name": each.get("name", ""),
        "source": each.get("source", ""),
        "row": each.get("row"),
        "measured": each["speedup"] is not None,
        "ratio": say_ratio(each),
        "moved": say_move(each),
        "caught": each["caught"],
        "why": each["why"] or "",
    }


def study_chart(found: Mapping[str, Any]) -> alt.LayerChart:
    """Every error that was measured against the line of the fair pair."""
    fair = found["fair"]
    rows = [_line("The fair pair", "nothing wrong", fair, _FAIR)]
    for each in found["switches"]:
        if each["speedup"] is not None:
            series = _CAUGHT if each["caught"] else _MISSED
            rows.append(_line("One error at a time", each["title"], each, series))
    for each in found["rungs"]:
        rows.append(_line("One study's errors, one less at a time", each["title"], each, _CAUGHT))
    rows[-1]["series"] = _FAIR if found["rungs"] else rows[-1]["series"]
    drawn = pd.DataFrame([row for row in rows if row["speedup"] is not None], dtype=object)
    chart = forest_chart(drawn, directions=FRAMEWORK_DIRECTIONS, description=_DESCRIPTION)
    line = (
        alt.Chart(alt.InlineData(values=[{"speedup": fair["speedup"]}]))
        .mark_rule(strokeWidth=1.5, strokeDash=[5, 4], aria=False)
        .encode(x="speedup:Q")
    )
    chart.layer.insert(1, line)
    return chart


def _line(group: str, label: str, ratio: Mapping[str, Any], series: str) -> dict[str, Any]:
    return {
        "group": group,
        "label": label,
        "series": series,
        "case": label,
        "a": "JAX",
        "b": "PyTorch",
        "value_label": say_ratio(ratio),
        **{key: ratio[key] for key in ("speedup", "low", "high", "num_starts")},
        "starts": [],
        "verdict": "wrong on purpose" if series != _FAIR else "fair",
    }

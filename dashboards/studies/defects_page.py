"""The page of a defect study: the effect of each known error, and which guards catch it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from benchcore.names import FRAMEWORK_NAMES, name_case_in_words
from dashboards.figures.forest_chart import FRAMEWORK_DIRECTIONS, forest_chart
from dashboards.formatting import NOT_MEASURED, format_factor, format_speedup
from dashboards.templating import render_template

_FAIR, _CAUGHT, _MISSED = "compiled", "eager", "other"
"""The series of the fair pair, of errors that a guard catches, and of the others."""


def render_study(found: Mapping[str, Any]) -> str:
    """The HTML for what `benchcore.experiments.defect_study.summary.summarise_study` found. Every
    string of the study is escaped."""
    charts = {}
    if found["fair"]["speedup"] is not None:
        charts["defects"] = study_chart(found).to_dict()
    versions = (f"{FRAMEWORK_NAMES[side]} {version}" for side, version in found["versions"].items())
    return render_template(
        "defects.html.j2",
        charts,
        found=found,
        case=_name_case(found),
        versions=" and ".join(versions),
        headline=write_headline(found),
        disturbed=f"{found['disturbed']}. {DISTURBED}" if found["disturbed"] else "",
        fair=format_ratio(found["fair"]),
        switches=[_row(each) for each in found["switches"]],
        corrections=[_row(each) for each in found["corrections"]],
        here="a CPU; not run on a GPU" if found["device_kind"] == "cpu" else "a GPU",
        description=_DESCRIPTION if charts else "",
    )


DISTURBED = (
    "Every block of the fair pair was disturbed, so all blocks are used: these numbers show only "
    "the direction. Rerun the study when the machine is quiet."
)
_DESCRIPTION = (
    "Speedup of JAX over PyTorch with each error alone, with intervals, on a log axis, and the "
    "fair pair's as a line. The tables below hold the same numbers."
)


def _name_case(found: Mapping[str, Any]) -> str:
    return name_case_in_words({**found, "case_name": found["case"]})


def write_headline(found: Mapping[str, Any]) -> str:
    """The fair ratio, and the range that single errors would report."""
    fair, case = found["fair"], _name_case(found)
    if fair["speedup"] is None:
        return f"The fair pair was {NOT_MEASURED} on {case}"
    measured = [each for each in found["switches"] if each["speedup"] is not None]
    headline = f"Run fairly, JAX is {format_ratio(fair)} as fast as PyTorch on {case}"
    if not measured:
        return headline
    low, high = (pick(each["speedup"] for each in measured) for pick in (min, max))
    return (
        f"{headline}; with a single error, the same machine reports {format_factor(low)} to "
        f"{format_factor(high)}"
    )


def format_ratio(ratio: Mapping[str, Any], keys: Sequence[str] = ("speedup", "low", "high")) -> str:
    """`1.21x (1.18 to 1.24)` from speedups."""
    if ratio[keys[0]] is None:
        return NOT_MEASURED
    logs = [math.nan if ratio[key] is None else math.log(ratio[key]) for key in keys]
    return format_speedup(logs[0], logs[1], logs[2])


def format_move(each: Mapping[str, Any]) -> str:
    """The ratio with an error over the fair ratio: `0.52x (0.50 to 0.54)`."""
    return format_ratio(each, ("moved", "moved_low", "moved_high"))


def _row(each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": each["title"],
        "name": each.get("name", ""),
        "source": each.get("source", ""),
        "row": each.get("row"),
        "measured": each["speedup"] is not None,
        "ratio": format_ratio(each),
        "moved": format_move(each),
        "caught": each["caught"],
        "why": each["why"] or "",
    }


def study_chart(found: Mapping[str, Any]) -> alt.LayerChart:
    """A forest of all measured errors, with the fair pair as a line."""
    fair = found["fair"]
    rows = [_line("The fair pair", "no error", fair, _FAIR)]
    for each in found["switches"]:
        if each["speedup"] is not None:
            series = _CAUGHT if each["caught"] else _MISSED
            rows.append(_line("One error at a time", each["title"], each, series))
    for each in found["corrections"]:
        rows.append(
            _line("One study's errors, corrected one at a time", each["title"], each, _CAUGHT)
        )
    rows[-1]["series"] = _FAIR if found["corrections"] else rows[-1]["series"]
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
        "value_label": format_ratio(ratio),
        **{key: ratio[key] for key in ("speedup", "low", "high", "num_starts")},
        "starts": [],
        "verdict": "wrong on purpose" if series != _FAIR else "fair",
    }

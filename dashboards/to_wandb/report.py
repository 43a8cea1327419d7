"""Saves a profile's report of Weights & Biases: the newest night's verdict, charts and links.

Started as a process of its own: `python -m dashboards.to_wandb.report CONTENT`, where CONTENT is a
JSON file of what `dashboards.to_wandb.content.gather_report` returns, with `entity` and `project`.
The report with this title is replaced; without one a new report is made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb
import wandb_workspaces.reports.v2

wr: Any = wandb_workspaces.reports.v2  # it does not export its names for type checkers

_WIDE = wr.Layout(w=24, h=16)
_MOST_CHARTS = 60
_COLUMNS, _CHART = 3, (8, 6)
"""Columns of the grid of charts, and the width and height of one."""


def save(content: dict[str, Any]) -> None:
    """Write the report into its project, in place of the one with its title."""
    api = wandb.Api()
    entity = content["entity"] or str(api.default_entity)
    place = {"entity": entity, "project": content["project"]}
    report = wr.Report(
        **place,
        title=content["title"],
        description=f"{content['campaign']} on {content['device']}",
        blocks=list_blocks(content, place),
        width="fluid",
    )
    known = [each for each in _list_reports(api, place) if each.display_name == report.title]
    if known:
        report.id = min(known, key=lambda each: each.created_at).id
    report.save()


def _list_reports(api: wandb.Api, place: dict[str, str]) -> list[Any]:
    return list(api.reports(f"{place['entity']}/{place['project']}"))


def list_blocks(content: dict[str, Any], place: dict[str, str]) -> list[Any]:
    """What the report holds, from top to bottom."""
    night = wr.Runset(**place, name="This night", filters=f"ID = '{content['campaign']}'")
    nights = wr.Runset(**place, name="All nights", filters=f"Group = '{content['group']}'")
    return [
        wr.CalloutBlock(content["verdict"] or "This night has no published page."),
        wr.P(_link("The night on the dashboard", content["page"], before=content["counted"])),
        wr.H2("Open events and suspicions"),
        _list_changes(content["changes"]),
        wr.H2("Speedups of this night"),
        wr.PanelGrid(runsets=[night], panels=_list_panels()),
        wr.H2("Speedups over the nights"),
        *_list_trends(content["speedups"], night),
        wr.H2("All nights"),
        wr.PanelGrid(runsets=[nights], panels=[wr.RunComparer(diff_only=True, layout=_WIDE)]),
    ]


def _link(text: str, address: str | None, before: str) -> list[Any]:
    return [before] if address is None else [f"{before} ", wr.Link(text, address)]


def _list_changes(changes: Sequence[dict[str, str]]) -> Any:
    if not changes:
        return wr.P("None is open.")
    items: list[Any] = [
        each["text"] if each["link"] is None else wr.Link(each["text"], each["link"])
        for each in changes
    ]
    return wr.UnorderedList(items)


def _list_panels() -> list[Any]:
    below = wr.Layout(y=_WIDE.h, w=_WIDE.w, h=12)
    return [
        wr.MediaBrowser(title="Speedups", media_keys=["forest"], num_columns=1, layout=_WIDE),
        wr.WeavePanelSummaryTable(table_name="ratios", layout=below),
    ]


def _list_trends(speedups: Sequence[str], night: Any) -> list[Any]:
    """A chart per case and arms. The night's run holds the nights before it, too."""
    if not speedups:
        return [wr.P("No pair of the two frameworks counts in this night.")]
    width, height = _CHART
    panels: list[Any] = [
        wr.LinePlot(
            title=key.partition("/")[2],
            x="WallTime",
            y=[key],
            title_x="night",
            title_y="JAX speedup",
            layout=wr.Layout(
                x=width * (place % _COLUMNS), y=height * (place // _COLUMNS), w=width, h=height
            ),
        )
        for place, key in enumerate(speedups[:_MOST_CHARTS])
    ]
    more = len(speedups) - _MOST_CHARTS
    rest = [wr.P(f"And {more} more, in the night's run.")] if more > 0 else []
    return [wr.PanelGrid(runsets=[night], panels=panels), *rest]


if __name__ == "__main__":
    save(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))

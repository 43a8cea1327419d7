"""The answers of Guide and Operations: a night changes only those of the cases that it measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from benchcore.store.database import Engine
from benchcore.store.reports.guide import list_answers, name_case_of, sort_answers
from dashboards.site.files import SiteFiles

Answer = dict[str, Any]
_FILE = "answers"
_TIMED = ("since", "earlier")
"""Parts of an answer that have a time of their own."""


def refresh_guide_rows(
    files: SiteFiles, engine: Engine, campaigns: Collection[str]
) -> list[Answer]:
    """The rows of `benchcore.store.reports.guide.list_answers`. Cases that these campaigns measured
    are read again; others stay as the site remembers them."""
    new = list_answers(engine, campaigns=campaigns)
    again = {name_case_of(each) for each in new}
    kept = (_map_times(each, datetime.fromisoformat) for each in files.read(_FILE) or [])
    found = sort_answers([*(each for each in kept if name_case_of(each) not in again), *new])
    files.write(_FILE, [_map_times(each, datetime.isoformat) for each in found])
    return found


def _map_times(answer: Mapping[str, Any], change: Callable[[Any], Any]) -> Answer:
    timed = {
        name: {**answer[name], "started_at": change(answer[name]["started_at"])}
        for name in _TIMED
        if answer[name] is not None
    }
    return {**answer, **timed, "started_at": change(answer["started_at"])}

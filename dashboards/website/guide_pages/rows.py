"""The answers of Guide and Operations: a night changes only those of the cases that it measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from benchcore.store.database import Engine
from benchcore.store.metric_values import Amounts
from benchcore.store.reports.guide import list_answers, name_case_of, sort_answers
from dashboards.website.files import WebsiteFiles

Answer = dict[str, Any]
_FILE = "answers"
_TIMED = ("since", "earlier")
"""Parts of an answer that have a time of their own."""
_PAST = "past"
"""What an answer remembers of its earlier nights: times, but for a number."""


def refresh_guide_rows(
    files: WebsiteFiles,
    engine: Engine,
    campaigns: Collection[str],
    amounts: Amounts | None = None,
) -> list[Answer]:
    """The rows of `benchcore.store.reports.guide.list_answers`. Cases that these campaigns measured
    are read again, from what the dashboard stores of their nights and those since; others stay as
    the dashboard stores them. `amounts` are those of contenders that were read already."""
    stored = _read(files)
    new = list_answers(engine, campaigns=campaigns, remembered=stored, amounts=amounts)
    again = {name_case_of(each) for each in new}
    kept = (each for each in stored if name_case_of(each) not in again)
    found = sort_answers([*kept, *new])
    files.write(_FILE, [_map_times(each, datetime.isoformat) for each in found])
    return _forget_past(found)


def read_guide_rows(files: WebsiteFiles) -> list[Answer]:
    """The rows that `refresh_guide_rows` returned last."""
    return _forget_past(_read(files))


def _read(files: WebsiteFiles) -> list[Answer]:
    return [_map_times(each, datetime.fromisoformat) for each in files.read(_FILE) or []]


def _forget_past(answers: Iterable[Answer]) -> list[Answer]:
    return [{name: each[name] for name in each if name != _PAST} for each in answers]


def _map_times(answer: Mapping[str, Any], change: Callable[[Any], Any]) -> Answer:
    timed = {
        name: {**answer[name], "started_at": change(answer[name]["started_at"])}
        for name in _TIMED
        if answer[name] is not None
    }
    if answer.get(_PAST) is not None:
        timed[_PAST] = {
            name: value if value is None or isinstance(value, int) else change(value)
            for name, value in answer[_PAST].items()
        }
    return {**answer, **timed, "started_at": change(answer["started_at"])}

"""The pairs that count as files: a CSV file per month, and the same as Parquet."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from benchcore.protocol import name_part
from benchcore.store.reports.export import RATIO_COLUMNS, SPEEDUPS
from dashboards.export import escape_formula, replace_file
from dashboards.formatting import is_missing
from dashboards.frames import does_count
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.gather import Campaign

_FOLDER = "downloads"
_CAMPAIGN = RATIO_COLUMNS.index("campaign")


@dataclass
class NewPairs:
    """The pairs that count of campaigns that are added together, until `write` writes each month's
    file once."""

    _months: defaultdict[str, dict[str, list[Sequence[Any]]]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def add(self, campaign: Campaign) -> None:
        """Take a campaign's pairs."""
        self._months[_month_of(campaign.begun)][campaign.name] = [*_list_rows(campaign)]

    def write(self, website: Path) -> None:
        """Put the pairs into the files of their months, in place of what these campaigns had."""
        for month, campaigns in self._months.items():
            path = _path_of(website, month)
            rows = [*_read_others(path, campaigns)]
            _write(path, [*rows, *(row for each in campaigns.values() for row in each)])
        self._months.clear()


def drop_pairs(website: Path, name: str, at: str) -> None:
    """Remove a campaign from the file of the month in which it began (`at`, an ISO time)."""
    path = _path_of(website, _month_of(datetime.fromisoformat(at)))
    if path.is_file():
        _write(path, list(_read_others(path, {name})))


def _month_of(at: datetime) -> str:
    return f"{at:%Y-%m}"


def _path_of(website: Path, month: str) -> Path:
    return website / _FOLDER / f"ratios-{month}.csv"


def _read_others(path: Path, names: Container[str]) -> Iterator[Sequence[str]]:
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            next(rows, None)
            yield from (row for row in rows if row[_CAMPAIGN] not in names)


def _list_rows(campaign: Campaign) -> Iterator[Sequence[Any]]:
    duels = {row["duel_run"]: row for row in campaign.rows("duels")}
    keys = {
        (row["duel_run"], row["name"]): row["environment_key"]
        for row in campaign.rows("contenders")
    }
    for row in filter(does_count, campaign.rows("ratios")):
        run = row["duel_run"]
        named = {f"{side}_environment_key": keys.get((run, row[side]), "") for side in "ab"}
        speedups = {
            name: None if is_missing(row[log]) else math.exp(row[log])
            for name, log in SPEEDUPS.items()
        }
        yield _as_text({**duels[run], **row, **named, **speedups})


def _as_text(row: Mapping[str, Any]) -> list[Any]:
    return ["" if is_missing(row[name]) else escape_formula(row[name]) for name in RATIO_COLUMNS]


def _write(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([RATIO_COLUMNS, *rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.getvalue().encode())


def write_parquet(website: Path) -> None:
    """Write each file that changed as Parquet, too, if pyarrow is installed."""
    if find_spec("pyarrow") is None:
        return
    for path in (website / _FOLDER).glob("*.csv"):
        target = path.with_suffix(".parquet")
        if target.is_file() and target.stat().st_mtime_ns >= path.stat().st_mtime_ns:
            continue
        part = name_part(target)
        frame = pd.read_csv(path, parse_dates=["started_at"])
        frame.to_parquet(part, index=False, engine="pyarrow")
        part.replace(target)


def list_section(website: Path) -> Block | None:
    """The links to the files, newest month first; None without any."""
    paths = sorted((website / _FOLDER).glob("*.csv"), reverse=True)
    rows = [
        {
            "month": path.stem.removeprefix("ratios-"),
            **{
                kind: blocks.link(text, f"{_FOLDER}/{each.name}")
                for kind, text, each in (
                    ("csv", "CSV", path),
                    ("parquet", "Parquet", path.with_suffix(".parquet")),
                )
                if each.is_file()
            },
        }
        for path in paths
    ]
    columns = (column("month", "Month"), column("csv", "CSV"), column("parquet", "Parquet"))
    caption = "Every pair that counts, as deadheat export writes it, by month."
    table = blocks.table("downloads", caption, columns, rows)
    return blocks.section("Download all numbers", [table], id="downloads") if rows else None

"""The numbers that count as tables with their provenance, for files that others read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sqlalchemy import Engine

from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import duel_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.frames.raw_times import read_raw_times
from benchcore.store.history.events import EVENT_COLUMNS, list_events
from benchcore.store.metrics import METRICS

_CASE = ("workload", "case_name", "use_case", "batch", "precision", "track")
_PLACE = ("device_model", "device_fingerprint", "node")
_PROVENANCE = (
    *("campaign", "duel_run", "duel_hash", "started_at", "site", "method", "snapshot"),
    "harness_version",
)
_SIDE = ("framework", "version", "arm", "environment_key")
_JUDGED = ("kind", "speedup", "low", "high", "verdict", "num_starts", "scope", "fair")
RATIO_COLUMNS = (
    *_CASE,
    *_PLACE,
    *(f"{side}_{name}" for side in "ab" for name in _SIDE),
    *_JUDGED,
    *_PROVENANCE,
)
SPEEDUPS = {"speedup": "log_ratio", "low": "low", "high": "high"}
"""Columns of ratios, and the logarithm behind each."""
MEASUREMENT_COLUMNS = (
    *_CASE,
    *_PLACE,
    *("framework", "version", "arm", "environment_key", "python_version", "num_starts"),
    *(each.key for each in METRICS),
    "passes_of",
    *_PROVENANCE,
)
_OF_BLOCK = ("campaign", "duel_run", "name", "workload", "case_name", "framework", "version", "arm")
BLOCK_COLUMNS = (*_OF_BLOCK, "start", "round", "step_ns", "degraded")
_AT_ONCE = 40
"""Campaigns that are read with one query per table."""


def export_tables(
    engine: Engine, campaigns: Sequence[str], *, blocks: bool = False
) -> dict[str, pd.DataFrame]:
    """`ratios`, a row per pair that counts; `measurements`, a row per contender of such a pair;
    `events`, a row per confirmed change; with `blocks` also its table, a row per timed block of
    such a contender. Each row names its campaign and its document."""
    parts = list(_read_parts(engine, campaigns, blocks))
    ratios = pd.concat([each[0] for each in parts]) if parts else pd.DataFrame()
    measured = pd.concat([each[1] for each in parts]) if parts else pd.DataFrame()
    tables = {
        "ratios": _choose(ratios, RATIO_COLUMNS),
        "measurements": _choose(measured, MEASUREMENT_COLUMNS),
        "events": _flatten(_choose(pd.DataFrame(list_events(engine)), EVENT_COLUMNS)),
    }
    if blocks:
        timed = [row for each in parts for row in each[2]]
        tables["blocks"] = _choose(pd.DataFrame(timed), BLOCK_COLUMNS)
    return tables


def _read_parts(
    engine: Engine, campaigns: Sequence[str], blocks: bool
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame, list[dict[str, Any]]]]:
    for first in range(0, len(campaigns), _AT_ONCE):
        names = list(campaigns[first : first + _AT_ONCE])
        found = ratio_frame(engine, names)
        counting = found.loc[found["counts"].eq(True) & found["log_ratio"].notna()]
        wanted = ["duel_run", "site", "snapshot", "harness_version"]
        duels = duel_frame(engine, names).loc[:, [*wanted, "node"]]
        contenders = contender_frame(engine, names)
        sides = _of_pairs(contenders, counting)
        hashes = counting.loc[:, ["duel_run", "duel_hash"]].drop_duplicates()
        yield (
            _describe_ratios(counting, duels.loc[:, wanted], contenders),
            _describe_contenders(sides, duels, hashes),
            _list_blocks(sides, read_raw_times(engine, names)) if blocks else [],
        )


def _list_blocks(sides: pd.DataFrame, raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            **{str(key): each for key, each in side.items()},
            "start": start["start_index"],
            "round": block["round"],
            "step_ns": block["ns"],
            "degraded": block["degraded"],
        }
        for side in sides.loc[:, list(_OF_BLOCK)].to_dict("records")
        for start in raw[side["duel_run"]][side["name"]]["starts"]
        for block in start["blocks"]
    ]


def _describe_ratios(
    counting: pd.DataFrame, duels: pd.DataFrame, contenders: pd.DataFrame
) -> pd.DataFrame:
    rows = counting.merge(duels, on="duel_run", validate="many_to_one")
    for side in "ab":
        keys = contenders.loc[:, ["duel_run", "name", "environment_key"]].rename(
            columns={"name": side, "environment_key": f"{side}_environment_key"}
        )
        rows = rows.merge(keys, on=["duel_run", side], how="left", validate="many_to_one")
    return rows.assign(**{name: np.exp(rows[log]) for name, log in SPEEDUPS.items()})


def _of_pairs(contenders: pd.DataFrame, counting: pd.DataFrame) -> pd.DataFrame:
    """The contenders that are a side of a pair that counts."""
    sides = {
        (row["duel_run"], row[side]) for row in counting.to_dict("records") for side in ("a", "b")
    }
    names = zip(contenders["duel_run"], contenders["name"], strict=True)
    return contenders.loc[[each in sides for each in names]]


def _describe_contenders(
    contenders: pd.DataFrame, duels: pd.DataFrame, hashes: pd.DataFrame
) -> pd.DataFrame:
    rows = contenders.merge(duels, on="duel_run", validate="many_to_one")
    return rows.merge(hashes, on="duel_run", validate="many_to_one")


def _choose(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """These columns in this order; without rows, the same columns."""
    if frame.empty:
        return pd.DataFrame({each: [] for each in columns})
    return frame.loc[:, list(columns)].reset_index(drop=True)


def _flatten(frame: pd.DataFrame) -> pd.DataFrame:
    """Lists and mappings as JSON."""

    def plain(value: Any) -> Any:
        return json.dumps(value, default=str) if isinstance(value, (list, dict)) else value

    return frame.map(plain) if len(frame) else frame

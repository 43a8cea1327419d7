"""Reads a waterfall's duel: its arms in order, those left out too, and what each gains."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine

from benchcore.protocol import name_case
from benchcore.store.duels import read_duels
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import duel_frame
from benchcore.verdict.duel.waterfall import Gain, Waterfall, build_waterfall

Row = dict[str, Any]
_NOTHING = {"factor": None, "low": None, "high": None, "verdict": None, "num_starts": None}


def read_waterfall(
    engine: Engine, campaign: str, duel_run: str, arms: Mapping[str, str | None]
) -> dict[str, Any]:
    """`arms` maps each label, in order, to its contender's name or to None where it was left out.

    A contender that did not end well has no gain, and the next is compared with the one before it.
    Raises KeyError for a duel run that the database lacks.
    """
    (record,) = [each for each in read_duels(engine, campaign) if each.duel_run == duel_run]
    frame = contender_frame(engine, campaign)
    rows = {row["name"]: row for row in frame.loc[frame["duel_run"] == duel_run].to_dict("records")}
    sides = {side.name: side for side in record.sides if rows[side.name]["status"] == "ok"}
    ran = [name for name in arms.values() if name in sides]
    fall = build_waterfall([sides[name] for name in ran], record.exclusions)
    gains = dict(zip(ran, fall.gains, strict=True))
    duels = duel_frame(engine, campaign)
    (duel,) = duels.loc[duels["duel_run"] == duel_run].to_dict("records")
    return {
        "case": name_case(duel["workload"], duel["case_name"]),
        **{key: duel[key] for key in ("node", "device_model")},
        "started_at": f"{duel['started_at']:%Y-%m-%d %H:%M} UTC",
        "arms": [
            _describe(label, name, rows.get(name or ""), gains.get(name or ""))
            for label, name in arms.items()
        ],
        **_describe_whole(fall),
    }


def _describe(
    label: str, name: str | None, row: Mapping[str, Any] | None, gain: Gain | None
) -> Row:
    found: Row = {"label": label, "name": name, "status": "left out", "median_step_ns": None}
    if row is not None:
        measured = row["status"] == "ok" and not math.isnan(row["median_step_ns"])
        found |= {
            "status": row["status"],
            "median_step_ns": row["median_step_ns"] if measured else None,
            "reason": "" if row["status"] == "ok" else row["reason"],
        }
    return {"reason": "", **found, **(_NOTHING if gain is None else dataclasses.asdict(gain))}


def _describe_whole(fall: Waterfall) -> Row:
    whole = None if fall.whole is None else dataclasses.asdict(fall.whole)
    return {"whole": whole, "product": fall.product}

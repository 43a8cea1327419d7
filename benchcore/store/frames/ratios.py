"""Ratios of pairs as a frame, each with what its two sides read back: whether the pair is fair."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from sqlalchemy import Engine

from benchcore.store.frames.duels import manifest_frame
from benchcore.store.frames.reading import (
    CASE,
    OLDEST_FIRST,
    Campaigns,
    columns_of,
    list_values,
    read_frame,
    select_columns,
)
from benchcore.store.history.conditions import read_conditions
from benchcore.store.models import IS_NO_CALIBRATION_RUN, DuelRun, PairRatio
from benchcore.verdict.duel.parity import Parity, ParitySide, compare_sides

Sides = Mapping[tuple[str, str], ParitySide]
"""By duel run and contender."""
_OF_PAIR = ("duel_run", "a", "b", "track")


def ratio_frame(engine: Engine, campaign: Campaigns = None) -> pd.DataFrame:
    """One row per pair of a duel run: log(T_b / T_a), its verdict, whether the pair is fair,
    and the `conditions` of its night. None = every campaign. Calibration runs are left out."""
    of_duel = columns_of(
        DuelRun, "duel_hash", "node", "device_model", "device_fingerprint", "method"
    )
    own = [each.key for each in PairRatio.__table__.columns if each.key != "duel_run"]
    query = select_columns(*CASE, *of_duel, *columns_of(PairRatio, *own)).join(PairRatio)
    query = query.where(IS_NO_CALIBRATION_RUN)
    ratios = read_frame(engine, query.order_by(*OLDEST_FIRST, PairRatio.a, PairRatio.b), campaign)
    known = read_conditions(engine, campaign)
    conditions = pd.Series([known[each] for each in ratios["duel_run"]], ratios.index, "object")
    ratios = ratios.assign(conditions=conditions)
    return add_parity(ratios, read_sides(manifest_frame(engine, campaign)))


def read_sides(manifests: pd.DataFrame) -> Sides:
    """The sides that `benchcore.store.frames.duels.manifest_frame` knows."""
    return {
        (each["duel_run"], each["name"]): ParitySide(
            **{key: each[key] for key in ("name", "framework", "settings", "manifest")}
        )
        for each in manifests.to_dict("records")
    }


def add_parity(ratios: pd.DataFrame, sides: Sides) -> pd.DataFrame:
    """Add the columns `fair` (None = not known), `differences` (name, a's and b's reading) and
    `violations` (why the ratio is void). The duels of a night share most settings, so equal sides
    are compared once."""
    texts = {key: repr(side) for key, side in sides.items()}
    known = dict[tuple[str | None, str | None, str], Parity | None]()
    found = list[Parity | None]()
    for run, a, b, track in list_values(ratios, *_OF_PAIR):
        pair = (texts.get((run, a)), texts.get((run, b)), track)
        if pair not in known:
            known[pair] = _compare(sides, run, a, b, track)
        found.append(known[pair])
    columns = {
        "fair": [each and each.fair for each in found],
        "differences": [list(map(list, each.differences)) if each else [] for each in found],
        "violations": [list(each.violations) if each else [] for each in found],
    }
    added = {
        name: pd.Series(values, index=ratios.index, dtype="object")
        for name, values in columns.items()
    }
    return ratios.assign(**added)


def _compare(sides: Sides, duel_run: str, a: str, b: str, track: str) -> Parity | None:
    """Compare two sides' settings; None where a side did not finish, or left no manifest."""
    if (duel_run, a) not in sides or (duel_run, b) not in sides:
        return None
    one, other = sides[duel_run, a], sides[duel_run, b]
    return compare_sides(one, other, track) if one.manifest and other.manifest else None

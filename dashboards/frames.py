"""Which rows of a frame count, and which pair is the newest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from benchcore.names import arm_label
from dashboards.formatting import is_missing


def to_rows(found: pd.DataFrame | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a frame, or rows that were read from one."""
    if not isinstance(found, pd.DataFrame):
        return list(map(dict, found))
    names = [str(name) for name in found]
    columns = [found[name].astype("object").tolist() for name in found]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def select_rows(frame: pd.DataFrame, mask: Any) -> pd.DataFrame:
    """The rows where the mask, a series of booleans, holds.

    `frame[mask]` with types that a checker can follow: to it, a column may be a frame.
    """
    return frame.loc[mask.to_numpy(dtype=bool), :]


def counting(ratios: pd.DataFrame) -> Any:
    """Mask of the rows that count."""
    return pd.Series([does_count(row) for row in to_rows(ratios)], index=ratios.index, dtype=bool)


def does_count(row: Mapping[str, Any]) -> bool:
    """Whether a pair counts: it passed every check and has a value."""
    return row["counts"] == True and not is_missing(row["log_ratio"])  # noqa: E712


def newest_pair_rows(ratios: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest JAX against the newest torch; where no row is that, every pair of frameworks."""
    pairs = [row for row in ratios if row["kind"] == "cross_framework"]
    newest = [row for row in pairs if (row["a_role"], row["b_role"]) == ("newest", "newest")]
    return newest or pairs


def is_fair(pair: Mapping[str, Any]) -> bool:
    """Whether the two sides had the same settings, as read back; by torch's arm where they left
    nothing to read, or where the pair is void."""
    if pair["fair"] is None or pair["violations"]:
        return arm_label(str(pair["b_arm"])) == "compiled"
    return bool(pair["fair"])

"""Cases and pairs as the dashboard names them: keys of files and addresses, and words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchcore.names import (
    FRAMEWORK_NAMES,
    name_arm,
    name_case_in_words,
    name_model,
    name_precision,
    name_use_case,
)
from benchcore.protocol import DEFAULT_TRACK
from benchcore.store.history.series import CONTROL, ROLLING
from benchcore.verdict.history.series import SeriesKey
from dashboards.formatting import is_missing
from dashboards.website.names import name_file


def case_key(row: Mapping[str, Any]) -> str:
    """The name of a case's history: the case, its track, its device and its weights."""
    track = row["track"] if row["track"] != DEFAULT_TRACK else ""
    checkpoint = row.get("checkpoint")
    weights = "" if is_missing(checkpoint) else str(checkpoint)[:8]
    named = (row["workload"], row["case_name"], track, row["device_fingerprint"], weights)
    return name_file(*named)


def describe_case(row: Mapping[str, Any]) -> dict[str, Any]:
    """A case in words: by these, pages filter."""
    return {
        "words": name_case_in_words(row),
        "model": name_model(row["workload"]),
        "use_case": name_use_case(row["use_case"]),
        "precision": name_precision(row["precision"]),
        "batch": int(row["batch"]),
        "device": str(row["device_model"]),
    }


def pair_id(row: Mapping[str, Any]) -> str | None:
    """The pair's name in addresses; None if it is in no series, as a pair of pinned versions."""
    if row["a_role"] not in ROLLING:
        return None
    if row["kind"] == "cross_framework" and row["b_role"] in ROLLING:
        return name_pair(row["a_arm"], row["b_arm"], None)
    if row["kind"] == "cross_version" and row["b_role"] == CONTROL:
        return name_pair(row["a_arm"], row["b_arm"], row["b_role"])
    return None


def name_pair(a_arm: str, b_arm: str, control: str | None) -> str:
    """The same from both arms and the role of an older version."""
    return "~".join(filter(None, (a_arm, b_arm, control)))


def series_of(key: SeriesKey) -> dict[str, str]:
    """The state of the Series page that shows a series."""
    named = {name: getattr(key, name) for name in ("workload", "case_name", "track", "checkpoint")}
    case = case_key(named | {"device_fingerprint": key.device_fingerprint})
    return {
        "case": case,
        "pair": name_pair(key.a_arm, key.b_arm, key.control),
        "metric": key.metric,
    }


def describe_pair(row: Mapping[str, Any]) -> dict[str, Any]:
    """A pair for the catalogue: its id, its words, and the frameworks of its sides."""
    a = name_arm(row["a_framework"], row["a_arm"])
    b = name_arm(row["b_framework"], row["b_arm"])
    across = row["kind"] == "cross_framework"
    words = f"{a} against {b}" if across else f"{a} against its {row['b_role']} version"
    above = f"Above 1x, {a if across else 'the newer version'} is better."
    sides = {f"{side}_name": FRAMEWORK_NAMES.get(row[f"{side}_framework"], "") for side in "ab"}
    return {"id": pair_id(row), "words": words, "above": above, "sides": sides}

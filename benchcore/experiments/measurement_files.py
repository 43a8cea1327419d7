"""Users' measurements, read from files: paired times of allocations, and histories of nights."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchcore.errors import MOST_SHOWN, UserError, show

_MOST_BYTES = 500_000_000
_MOST_NIGHTS = 1_000_000
_LEAST_APART = 0.5
"""Days between two nights, which may begin shortly before or after midnight; runs nearer than this
to the first one of a night belong to it."""
_CORRECT = "correct the file, as `deadheat judge --help` shows"
_EPOCH, _DAY = datetime(1970, 1, 1, tzinfo=UTC), timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class History:
    """One value per night, or NaN where a night was not measured; and, where the file has times,
    the nights' numbers, which increase.

    `rows` are the rows of the file at which the nights begin: a night that was measured several
    times has the median of its runs.
    """

    values: np.ndarray
    nights: np.ndarray | None
    rows: np.ndarray
    num_repeated: int = 0


@dataclass(frozen=True, kw_only=True)
class Allocations:
    """What each pair of each allocation shows: log(seconds_b / seconds_a), or on a linear scale the
    difference b - a in units of `unit`, the median size of a value. `unit` None = logs."""

    pairs: list[np.ndarray]
    unit: float | None = None


def list_files(folder: Path, ending: str) -> list[Path]:
    """A folder's files with this ending, by name. Raises UserError if there is none.

    Names that begin with a dot are passed over, and no folder within is entered.
    """
    files = sorted(each for each in folder.glob(f"*{ending}") if not each.name.startswith("."))
    if not files:
        raise UserError(
            f"wanted files that end in {ending} in the folder {show(folder)}, got none; name "
            f"another folder, or one file"
        )
    return files


def read_allocations(path: Path) -> Allocations:
    """Paired measurements, one array per allocation.

    The layout is `{"allocations": [{"pairs": [[seconds_a, seconds_b], ...]}, ...]}`; other keys,
    such as the allocation's node, are the writer's own. An allocation may be left without a pair.
    With `"scale": "linear"` beside the list, pairs may be at or below zero.
    Raises UserError for anything else, and for two allocations with the same pairs.
    """
    try:
        document = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"wanted JSON, got {show(path)}: {str(error)[:MOST_SHOWN]}; {_CORRECT}"
        ) from None
    listed = document.get("allocations") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise UserError(
            f'wanted {{"allocations": [{{"pairs": [[seconds_a, seconds_b], ...]}}, ...]}}, got '
            f"{show(path)} without such a list; {_CORRECT}"
        )
    linear = document.get("scale") == "linear"
    values = [
        _read_pairs(each.get("pairs"), linear, f"of allocation {number} in {show(path)}")
        for number, each in enumerate(listed)
    ]
    unit = None
    if linear:
        sizes = np.abs(np.concatenate([np.zeros((0, 2)), *values]))
        unit = float(np.median(sizes) or sizes.max()) if sizes.any() else 1.0
        values = [each / unit for each in values]
    else:
        values = [np.log(each) for each in values]
    pairs = [each[:, 1] - each[:, 0] for each in values]
    _refuse_copies(pairs, path)
    return Allocations(pairs=pairs, unit=unit)


def read_history(path: Path) -> History:
    """A CSV file with a column `value`, one row per night, and optionally a column `time`.

    An empty value is a night that was not measured. Times are dates (ISO 8601) or numbers; rows of
    one night are its runs. Raises UserError for values that are not numbers, and for times that are
    none or out of order.
    """
    rows = _read_rows(path)
    header = [name.strip() for name in rows[0]] if rows else []
    if header.count("value") != 1:
        raise UserError(
            f"wanted a first line that names one column value, got {_shorten(','.join(header))} in "
            f"{show(path)}; write value, or time,value, above the numbers"
        )
    if len(rows) - 1 > _MOST_NIGHTS:
        raise UserError(f"wanted at most {_MOST_NIGHTS} nights, got more in {show(path)}; split it")
    column = header.index("value")
    texts = [row[column].strip() if column < len(row) else "" for row in rows[1:]]
    values = np.array([_read_value(text, number, path) for number, text in enumerate(texts)], float)
    if "time" not in header:
        return History(values=values, nights=None, rows=np.arange(len(values)))
    column = header.index("time")
    times = [row[column].strip() if column < len(row) else "" for row in rows[1:]]
    nights = _read_nights(times, path)
    begins = np.flatnonzero(np.append(True, np.diff(nights) > 0)[: len(nights)])
    runs = np.split(values, begins[1:]) if len(begins) else []
    return History(
        values=np.array([_take_median(each) for each in runs]),
        nights=nights[begins],
        rows=begins,
        num_repeated=sum(len(each) > 1 for each in runs),
    )


def _take_median(runs: np.ndarray) -> float:
    measured = runs[~np.isnan(runs)]
    return float(np.median(measured)) if len(measured) else math.nan


def _read_rows(path: Path) -> list[list[str]]:
    try:
        return list(csv.reader(_read_text(path).rstrip().splitlines(), strict=True))
    except csv.Error as error:
        raise UserError(
            f"wanted CSV, got {show(path)}: {str(error)[:MOST_SHOWN]}; correct the quotes in that "
            "line"
        ) from None


def _read_value(text: str, number: int, path: Path) -> float:
    if not text:
        return math.nan
    value = _read_number(text)
    if value is None:
        raise UserError(
            f"wanted finite numbers, got {_shorten(text)} in row {number} of {show(path)} (the "
            f"first night is row 0); leave the value empty where a night was not measured"
        )
    return value


def _read_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def _read_nights(times: Sequence[str], path: Path) -> np.ndarray:
    """A number per row; the runs of one night have the number of its first one."""
    nights: list[float] = []
    last = -math.inf
    apart = 0.0
    for number, text in enumerate(times):
        compact = len(text) == 8 and text.isdecimal()  # 20261122
        night = None if compact else _read_number(text)
        if night is None:
            night, apart = _read_date(text), _LEAST_APART
        if night is None and compact:
            night, apart = _read_number(text), 0.0
        if night is None or night < last:
            before = f", after {_shorten(times[number - 1])}" if number else ""
            raise UserError(
                f"wanted nights in order, each time a date such as 2026-11-22 or a number, got "
                f"{_shorten(text)}{before} in row {number} of {show(path)}; sort the rows"
            )
        last = night
        nights.append(nights[-1] if nights and night - nights[-1] <= apart else night)
    return np.array(nights)


def _read_date(text: str) -> float | None:
    """A date in days. A time with a zone is converted to UTC, one without is taken as it is."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment.replace(tzinfo=UTC) - _EPOCH - (moment.utcoffset() or timedelta())) / _DAY


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise UserError(f"wanted a file, got {show(path)}, which is not one; check the path")
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(
                f"wanted at most {_MOST_BYTES / 1e6:.0f} MB, got more in {show(path)}; split it"
            )
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)[:MOST_SHOWN]
        raise UserError(
            f"wanted text in UTF-8, got {show(path)}: {reason}; save it as UTF-8, or set its "
            "permissions"
        ) from None


def _read_pairs(pairs: Any, linear: bool, where: str) -> np.ndarray:
    """One row per pair: the values of a and b."""
    if not isinstance(pairs, list):
        raise UserError(f"wanted a list as the pairs {where}, got {_shorten(pairs)}; {_CORRECT}")
    for number, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_finite, pair)):
            raise UserError(
                f"wanted [seconds_a, seconds_b], both above zero, got {_shorten(pair)} as pair "
                f"{number} {where}; leave out pairs that were not measured"
            )
        if not linear and min(pair) <= 0:
            raise UserError(
                f"wanted [seconds_a, seconds_b], both above zero, got {_shorten(pair)} as pair "
                f'{number} {where}; leave it out, or set "scale": "linear" if these are not times'
            )
    return np.array(pairs, dtype=float).reshape(-1, 2)


def _is_finite(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:
        return False


def _refuse_copies(allocations: Sequence[np.ndarray], path: Path) -> None:
    """Times of a real clock don't repeat: an allocation pasted twice would count twice."""
    seen: dict[bytes, int] = {}
    for number, pairs in enumerate(allocations):
        if len(set(pairs.tolist())) > 1:
            first = seen.setdefault(pairs.tobytes(), number)
            if first != number:
                raise UserError(
                    f"wanted independent allocations, got the same pairs in allocations {first} "
                    f"and {number} of {show(path)}; leave the copy out"
                )


def _shorten(value: object) -> str:
    return ascii(value)[:MOST_SHOWN]

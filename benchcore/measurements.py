"""Anyone's measurements, read from files: paired times of allocations, and histories of nights."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchcore.errors import MOST_SHOWN, UserError, show

_MOST_BYTES = 500_000_000


def list_files(path: Path, ending: str) -> list[Path]:
    """The file, or a folder's files with this ending, by name. Raises UserError if there is none.

    In a folder, names that begin with a dot are passed over, and no folder within is entered.
    """
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.glob(f"*{ending}") if not each.name.startswith("."))
    if not files:
        raise UserError(
            f"wanted files that end in {ending} in the folder {show(path)}, got none; name another "
            f"folder, or one file"
        )
    return files


def read_allocations(path: Path) -> list[np.ndarray]:
    """log(seconds_b / seconds_a) of each pair, one array an allocation.

    The layout is `{"allocations": [{"pairs": [[seconds_a, seconds_b], ...]}, ...]}`; other keys,
    such as the allocation's node, are the writer's own. An allocation may be left without a pair.
    Raises UserError for anything else, and for two allocations with the same pairs.
    """
    try:
        document = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"wanted JSON, got {show(path)}: {str(error)[:MOST_SHOWN]}") from None
    listed = document.get("allocations") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise UserError(
            f'wanted {{"allocations": [{{"pairs": [[seconds_a, seconds_b], ...]}}, ...]}}, got '
            f"{show(path)} without such a list"
        )
    allocations = [
        _read_pairs(each.get("pairs"), f"of allocation {number} in {show(path)}")
        for number, each in enumerate(listed)
    ]
    _refuse_copies(allocations, path)
    return allocations


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise UserError(f"wanted a file, got {show(path)}, which is none; check the path")
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(
                f"wanted at most {_MOST_BYTES / 1e6:.0f} MB, got more in {show(path)}; split it"
            )
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)[:MOST_SHOWN]
        raise UserError(f"wanted text in UTF-8, got {show(path)}: {reason}") from None


def _read_pairs(pairs: Any, where: str) -> np.ndarray:
    if not isinstance(pairs, list):
        raise UserError(f"wanted a list as the pairs {where}, got {_shorten(pairs)}")
    for number, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_time, pair)):
            raise UserError(
                f"wanted [seconds_a, seconds_b], both above zero, got {_shorten(pair)} as pair "
                f"{number} {where}; leave out pairs that were not measured"
            )
    times = np.log(np.array(pairs, dtype=float).reshape(-1, 2))
    return times[:, 1] - times[:, 0]


def _is_time(value: Any) -> bool:
    try:
        return type(value) in (int, float) and value > 0 and math.isfinite(value)
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

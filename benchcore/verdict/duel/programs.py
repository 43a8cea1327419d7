"""Compare the compiled programs of two contenders of one framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class ProgramDiff:
    """`same` is None if one of the two has no hash; `summary` is a one-line summary."""

    same: bool | None
    summary: str


def compare_programs(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> ProgramDiff:
    """Compare the `program` of two profiles: hash, counts by kind, bytes accessed.

    Programs are the same if their text is equal except for names and source positions. Counts may
    be equal for different programs: another order, other shapes, other code.
    """
    if a is None or b is None:
        return ProgramDiff(same=None, summary="one of them has no stored program")
    changes = [
        f"{name} {_show(one)} -> {_show(other)}"
        for name, one, other in _list_counts(a, b)
        if one != other
    ]
    hidden = len(changes) - _MOST_NAMED
    changed = ", ".join([*changes[:_MOST_NAMED], *([f"and {hidden} more"] if hidden > 0 else [])])
    if None in (a["hash"], b["hash"]):
        return ProgramDiff(
            same=None, summary=f"without a hash to compare; {changed or 'counts agree'}"
        )
    if a["hash"] == b["hash"]:
        return ProgramDiff(same=True, summary=f"same program ({a['hash'][:12]})")
    hashes = f"{a['hash'][:12]} -> {b['hash'][:12]}"
    return ProgramDiff(
        same=False,
        summary=f"another program: {changed or 'the same counts in other code'} ({hashes})",
    )


def _list_counts(
    a: Mapping[str, Any], b: Mapping[str, Any]
) -> list[tuple[str, int | None, int | None]]:
    names = sorted(a["counts"].keys() | b["counts"].keys())
    counts = [(name, a["counts"].get(name, 0), b["counts"].get(name, 0)) for name in names]
    return [*counts, ("bytes", a["bytes"], b["bytes"])]


def _show(count: int | None) -> str:
    return "unknown" if count is None else str(count)

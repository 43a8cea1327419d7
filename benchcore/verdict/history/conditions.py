"""Conditions: what a night ran under and its series survives, and how they changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Conditions = Mapping[str, str]
"""By name: driver, CUDA libraries, kernel, node, clock policy, host. What is unknown is absent."""


@dataclass(frozen=True, kw_only=True, order=True)
class ConditionChange:
    """A condition with its old and new value."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name} {self.old} to {self.new}"


def list_condition_changes(before: Conditions, after: Conditions) -> list[ConditionChange]:
    """The conditions that are known of both nights and differ, by name."""
    return [
        ConditionChange(name=name, old=before[name], new=after[name])
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]


def list_lasting_changes(
    before: Sequence[Conditions], since: Sequence[Conditions]
) -> list[ConditionChange]:
    """The conditions with one value in all nights `since` that none of the nights `before` had, by
    name; `old` is the last value before. A condition that some night did not record is left out."""
    if not before or not since:
        return []
    return [
        change
        for change in list_condition_changes(before[-1], since[0])
        if {night.get(change.name) for night in since} == {change.new}
        and not {night.get(change.name) for night in before} & {change.new, None}
    ]


def find_new_conditions(nights: Sequence[Conditions]) -> list[list[ConditionChange]]:
    """For each night, oldest first, the conditions with a value that no earlier night had; `old` is
    the last value before it.

    Jobs that alternate between known nodes change nothing new, so they are not listed each night.
    """
    seen: dict[str, list[str]] = {}
    found, last = list[list[ConditionChange]](), None
    for night in nights:
        if night is last or night == last:  # as nearly all are
            found.append([])
            continue
        last = night
        found.append(
            [
                ConditionChange(name=name, old=seen[name][-1], new=value)
                for name, value in sorted(night.items())
                if name in seen and value not in seen[name]
            ]
        )
        for name, value in night.items():
            known = seen.setdefault(name, [])
            if value in known:
                known.remove(value)
            known.append(value)
    return found


def describe_changes(changes: Iterable[ConditionChange]) -> str:
    """`driver 570.1 to 580.2, node a to b`; empty without changes."""
    return ", ".join(map(str, changes))

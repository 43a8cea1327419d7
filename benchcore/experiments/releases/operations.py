"""The single operations that every release measures again: those that the page Operations lists,
and others as far as their time allows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from benchcore.cell.document import spec_case
from benchcore.device_names import parse_device
from benchcore.planning.breadth import list_arms, list_breadth
from benchcore.planning.catalog import list_workloads, load_spec
from benchcore.planning.profiles import Match, Profile, breadth, list_sentinels
from benchcore.planning.tracks import DEFAULT_TRACK, JAX_NEWEST, TORCH_EAGER
from benchcore.store.reports.operations import Answer, list_operations, measure_slowness

OPERATION_S = 60.0
"""What one operation takes: mostly two contenders, three starts, as in the profile `breadth`."""
OPERATIONS_S = 1800.0
"""What all operations of a release may take; the listed ones may take more."""
_SENTINEL_ARMS = (JAX_NEWEST, TORCH_EAGER)
Operation = tuple[str, str]
"""Workload and case."""


def add_operations(
    profile: Profile, answers: Sequence[Mapping[str, Any]], budget_s: float = OPERATIONS_S
) -> Profile:
    """The profile with the operations to measure again, in the newest versions of both
    frameworks, and with the sentinels that they need. `answers` are those of the Guide."""
    limits = breadth().limits
    known = {(match.workload, match.case) for match in profile.matches if match.sentinel}
    matches, sentinels = list[Match](), dict[Operation, Match]()
    for workload, case in choose_operations(answers, profile.device, budget_s):
        arms = list_arms(workload, case)
        matches.append(
            Match(workload=workload, case=case, arms=arms, expected_s=OPERATION_S, limits=limits)
        )
        precision = load_spec(workload).cases[case].precision
        for each in list_sentinels(profile.device, precision, _SENTINEL_ARMS, limits):
            sentinels.setdefault((each.workload, each.case), each)
    lacking = [each for key, each in sentinels.items() if key not in known]
    return dataclasses.replace(profile, matches=(*lacking, *profile.matches, *matches))


def list_measured(answers: Sequence[Answer], campaign: str) -> list[Answer]:
    """The answers about single operations that this campaign measured."""
    return [each for each in list_operations(answers) if each["campaign"] == campaign]


def choose_operations(
    answers: Sequence[Mapping[str, Any]], device: str, budget_s: float
) -> list[Operation]:
    """The listed operations of this kind of device, the largest ratio first, whatever they cost.
    Then others, those first that were never measured or not for the longest time, while all
    together take `budget_s` at most."""
    kind = parse_device(device).kind
    rows = [
        row
        for row in list_operations(answers)
        if parse_device(row["device"]).kind == kind and row["track"] == DEFAULT_TRACK
    ]
    measured = dict[Operation, Any]()
    for row in rows:
        operation = (row["workload"], spec_case(row["case_name"]))
        measured[operation] = max(row["started_at"], measured.get(operation, row["started_at"]))
    there = [each for each in dict.fromkeys([*_list_breadth(), *measured]) if _is_operation(*each)]
    listed = [
        (row["workload"], spec_case(row["case_name"]))
        for row in rows
        if measure_slowness(row).is_listed
    ]
    chosen = [each for each in dict.fromkeys(listed) if each in there]
    others = [each for each in there if each not in chosen]
    others.sort(key=lambda each: (each in measured, measured.get(each, 0)))
    room = max(0, int(budget_s / OPERATION_S) - len(chosen))
    return chosen + others[:room]


def _list_breadth() -> list[Operation]:
    return [each for each in list_breadth() if _is_operation(*each)]


def _is_operation(workload: str, case: str) -> bool:
    """Whether it is a single operation that still exists."""
    found = load_spec(workload).cases.get(case) if workload in list_workloads() else None
    return found is not None and found.use_case == "op"

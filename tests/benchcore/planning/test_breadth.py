"""The profile `breadth` holds every kind of work that both frameworks have."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchcore.planning import catalog
from benchcore.planning.breadth import list_breadth
from benchcore.planning.profiles import load_profile
from benchcore.planning.tracks import EAGER_ARMS, TORCH_EAGER
from benchcore.verdict.duel.physics import SENTINELS

_MACHINE = "cpu-intel-xeon-2026-11-26/spool/nightly-breadth-2026-11-26"
_STORED = Path(__file__).parents[3] / "results" / _MACHINE / "documents.zip"
_ENDS = ("started", "ended")


def test_every_workload_of_both_frameworks_is_in_it() -> None:
    both = {
        name
        for name in catalog.list_workloads()
        if {"jax", "torch"} <= set(catalog.list_sides(name)) and not catalog.is_faulty(name)
    }
    assert len(both) > 14
    listed = {workload for workload, _ in list_breadth()}
    # noop has no work, and sentinels are measured by every profile.
    assert listed == both - {"noop", *SENTINELS}


def test_every_operation_is_in_it() -> None:
    cases = catalog.load_spec("ops").cases
    listed = {cases[case].operation for workload, case in list_breadth() if workload == "ops"}
    assert listed == {each.operation for each in cases.values()}
    assert len(listed) >= 16


def test_what_numpys_users_write_is_in_it_with_both_sides_eager() -> None:
    eager = [match for match in load_profile("breadth").matches if match.arms == EAGER_ARMS]
    assert [match.case for match in eager] == ["linspace_chain_small", "elementwise_chain_small"]
    assert [arm.settings["compile"] for arm in EAGER_ARMS] == ["none", "none"]


def test_it_fits_into_an_hour_by_its_own_estimate() -> None:
    """With six minutes for proofs, and for what lies between duels."""
    profile = load_profile("breadth")
    assert sum(match.expected_s for match in profile.matches) <= 3600 - 360


def test_the_estimate_is_no_less_than_what_the_slower_machine_took() -> None:
    """Without what eager PyTorch itself took, where it takes no part any more."""
    took = {each.case: each.seconds for each in _list_stored()}
    eager_s = {each.case: each.eager_s for each in _list_stored()}
    expected = measured = 0.0
    for match in load_profile("breadth").matches:
        case = (match.workload, match.case)
        if case == ("small_lm", "tiny_train_x2") or match.sentinel:
            continue  # three duels of this name; a sentinel's estimate is all profiles'
        expected += match.expected_s
        measured += took[case] - (0.0 if TORCH_EAGER in match.arms else eager_s[case])
        assert match.expected_s == pytest.approx(took[case], rel=0.35), case
    assert measured * 0.99 <= expected <= measured * 1.05


@dataclass(frozen=True)
class _Stored:
    case: tuple[str, str]
    seconds: float
    eager_s: float
    """What the eager PyTorch of the duel spent in stages, blocks and samples of latency."""


@cache
def _list_stored() -> list[_Stored]:
    with zipfile.ZipFile(_STORED) as packed:
        documents = [json.loads(packed.read(name)) for name in packed.namelist()]
    return [_summarise(each) for each in documents]


def _summarise(document: dict[str, Any]) -> _Stored:
    ends = [datetime.fromisoformat(document["allocation"][f"{end}_at"]) for end in _ENDS]
    starts = [
        start
        for contender in document["contenders"]
        if contender["arm"] == TORCH_EAGER.name
        for start in contender["starts"]
    ]
    eager_s = sum(
        sum(filter(None, start["stages"].values()))
        + sum(block["elapsed_ns"] for block in start["blocks"]) / 1e9
        + sum(start["latency_ns"] or ()) / 1e9
        for start in starts
    )
    duel = document["duel"]
    seconds = (ends[1] - ends[0]).total_seconds()
    return _Stored((duel["workload"], duel["case"]), seconds, eager_s)


def test_only_the_slowest_cases_go_without_eager_pytorch() -> None:
    matches = [each for each in load_profile("breadth").matches if each.case != "tiny_train_x2"]
    without = [each for each in matches if TORCH_EAGER not in each.arms]
    assert len(without) == 7
    fastest = min(each.expected_s for each in without)
    assert fastest > max(each.expected_s for each in matches if each not in without)

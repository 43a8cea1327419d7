"""The profile `breadth` holds every kind of work that both frameworks have."""

from __future__ import annotations

import json
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchcore.planning import catalog
from benchcore.planning.breadth import list_breadth, list_controls
from benchcore.planning.profiles import load_profile
from benchcore.planning.tracks import EAGER_ARMS, TORCH_COMPILE, TORCH_EAGER
from benchcore.verdict.duel.physics import SENTINELS

_RESULTS = Path(__file__).parents[3] / "results"
_STORED = "cpu-intel-xeon-2026-11-26/spool/nightly-breadth-2026-11-26"
_NEWER = "cpu-intel-xeon-2026-11-27/spool/sweep-recompile-20261127t161636062051"
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
    """Without what eager PyTorch itself took, where it takes no part any more, and without trials
    of the C++ compiler; controls take what the newest versions took."""
    stored = _list_stored(_STORED)
    trials_s = _measure_trials_s()
    expected = measured = 0.0
    for match in load_profile("breadth").matches:
        case = (match.workload, match.case)
        if case == ("small_lm", "tiny_train_x2") or match.sentinel:
            continue  # three duels of this name; a sentinel's estimate is all profiles'
        duel = stored[case]
        tried = trials_s if duel.compile_s > trials_s else 0.0
        taken = duel.seconds - tried - (0.0 if TORCH_EAGER in match.arms else duel.arms_s[EAGER])
        if list_controls(*case):
            taken += duel.arms_s["jax-jit"] + duel.arms_s[COMPILED] - tried
        expected += match.expected_s
        measured += taken
        assert match.expected_s == pytest.approx(taken, rel=0.3), case
    assert measured * 0.99 <= expected <= measured * 1.05


def _measure_trials_s() -> float:
    """What a cold compilation took less at least once METHOD 3 had no trials in it."""
    case = ("recompile", "infer_base")
    return _list_stored(_STORED)[case].compile_s - _list_stored(_NEWER)[case].compile_s


COMPILED, EAGER = TORCH_COMPILE.name, TORCH_EAGER.name


@dataclass(frozen=True)
class _Stored:
    seconds: float
    compile_s: float
    """The longest compilation of compiled PyTorch; 0 = it took no part."""
    arms_s: dict[str, float]
    """What each arm spent in stages, blocks and samples of latency."""


@cache
def _list_stored(folder: str) -> dict[tuple[str, str], _Stored]:
    with zipfile.ZipFile(_RESULTS / folder / "documents.zip") as packed:
        documents = [json.loads(packed.read(name)) for name in packed.namelist()]
    return {
        (each["duel"]["workload"], each["duel"]["case"]): _summarise(each) for each in documents
    }


def _summarise(document: dict[str, Any]) -> _Stored:
    ends = [datetime.fromisoformat(document["allocation"][f"{end}_at"]) for end in _ENDS]
    starts = {each["arm"]: each["starts"] for each in document["contenders"]}
    compiled = [start["stages"]["compile"] or 0.0 for start in starts.get(COMPILED, ())]
    return _Stored(
        seconds=(ends[1] - ends[0]).total_seconds(),
        compile_s=max(compiled, default=0.0),
        arms_s=defaultdict(float, {arm: _add_up(of_arm) for arm, of_arm in starts.items()}),
    )


def _add_up(starts: list[dict[str, Any]]) -> float:
    return sum(
        sum(filter(None, start["stages"].values()))
        + sum(block["elapsed_ns"] for block in start["blocks"]) / 1e9
        + sum(start["latency_ns"] or ()) / 1e9
        for start in starts
    )


def test_only_the_slowest_cases_go_without_eager_pytorch() -> None:
    matches = [each for each in load_profile("breadth").matches if each.case != "tiny_train_x2"]
    without = [each for each in matches if TORCH_EAGER not in each.arms]
    assert len(without) == 7
    fastest = min(each.expected_s for each in without)
    assert fastest > max(each.expected_s for each in matches if each not in without)

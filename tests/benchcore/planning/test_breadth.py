"""The profile `breadth` holds every kind of work that both frameworks have."""

from __future__ import annotations

import json
import zipfile
from collections import defaultdict
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchcore.planning import catalog
from benchcore.planning.breadth import list_breadth
from benchcore.planning.profiles import load_profile
from benchcore.planning.tracks import EAGER_ARMS, TORCH_COMPILE, TORCH_EAGER
from benchcore.verdict.duel.physics import SENTINELS

_RESULTS = Path(__file__).parents[3] / "results"
_STORED = "cpu-amd-epyc-2026-11-29/spool/nightly-breadth-2026-11-29"


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


def test_eager_pytorch_takes_part_where_it_is_the_question() -> None:
    matches = [each for each in load_profile("breadth").matches if not each.sentinel]
    both = [each for each in matches if TORCH_COMPILE in each.arms and TORCH_EAGER in each.arms]
    assert {(each.workload, each.case) for each in both} == {
        ("mlp", "infer_b32"),
        ("recompile", "infer_base"),
        ("ops", "elementwise_chain_medium"),
        ("ops", "softmax_medium"),
        ("ops", "layer_norm_medium"),
    }


def test_it_fits_into_an_hour_by_its_own_estimate() -> None:
    """With six minutes for proofs, and for what lies between duels."""
    profile = load_profile("breadth")
    assert sum(match.expected_s for match in profile.matches) <= 3600 - 360


def test_the_estimate_is_what_the_slower_machine_took() -> None:
    stored = _list_stored_s()
    expected = measured = 0.0
    for match in load_profile("breadth").matches:
        if match.sentinel:
            continue  # a sentinel's estimate is all profiles'
        taken = stored[match.workload, match.case]
        expected += match.expected_s
        measured += taken
        assert match.expected_s == pytest.approx(taken, rel=0.3), (match.workload, match.case)
    assert measured * 0.99 <= expected <= measured * 1.05


def test_the_stored_night_took_less_than_an_hour() -> None:
    documents = _list_documents()
    began, ended = (
        [datetime.fromisoformat(each["allocation"][f"{end}_at"]) for each in documents]
        for end in ("started", "ended")
    )
    assert {(each["duel"]["workload"], each["duel"]["case"]) for each in documents} >= set(
        list_breadth()
    )
    assert (max(ended) - min(began)).total_seconds() < 3600


def _list_stored_s() -> dict[tuple[str, str], float]:
    """Seconds of each case's duel: the longest, where several have one case."""
    taken = defaultdict[tuple[str, str], float](float)
    for each in _list_documents():
        began, ended = (
            datetime.fromisoformat(each["allocation"][f"{end}_at"]) for end in ("started", "ended")
        )
        case = (each["duel"]["workload"], each["duel"]["case"])
        taken[case] = max(taken[case], (ended - began).total_seconds())
    return taken


@cache
def _list_documents() -> list[dict[str, Any]]:
    with zipfile.ZipFile(_RESULTS / _STORED / "documents.zip") as packed:
        return [json.loads(packed.read(name)) for name in packed.namelist()]

"""The profile `breadth` holds every kind of work that both frameworks have."""

from __future__ import annotations

from benchcore.planning import catalog
from benchcore.planning.breadth import list_breadth
from benchcore.planning.profiles import load_profile
from benchcore.planning.tracks import EAGER_ARMS, TORCH_EAGER
from benchcore.verdict.duel.physics import SENTINELS


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
    """With six minutes for environments and proofs."""
    profile = load_profile("breadth")
    assert sum(match.expected_s for match in profile.matches) <= 3600 - 360


def test_only_the_slowest_cases_go_without_eager_pytorch() -> None:
    without = [
        match.case
        for match in load_profile("breadth").matches
        if TORCH_EAGER not in match.arms and match.workload != "small_lm"
    ]
    assert sorted(without) == ["infer_b1", "per_sample_grad_b32", "train_b32", "train_b32"]

"""The time of a night goes to the pairs whose intervals another start narrows most."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from newest_releases import RELEASES

from benchcore.cell.stopping import nested_half_width
from benchcore.planning.budgets import EarlierDuels, PairSpread, share_budgets, share_seconds
from benchcore.planning.matrix import Plan, PlannedDuel, make_plan
from benchcore.planning.profiles import load_profile
from benchcore.protocol import DuelLimits

LIMITS = DuelLimits(starts=3, max_starts=10, compilations=1, budget_s=60.0)


def _earlier(*spreads: float, start_s: float = 10.0, compilations: float = 0.0) -> EarlierDuels:
    pairs = tuple(PairSpread(starts=each, compilations=compilations) for each in spreads)
    return EarlierDuels(start_s=start_s, pairs=pairs)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(load_profile("laptop"), RELEASES, campaign="night", site="local")


def test_a_noisy_pair_gets_the_time_that_a_steady_one_does_not_need() -> None:
    noisy, steady = _earlier(0.05), _earlier(0.001)
    shared = share_seconds([(LIMITS, noisy), (LIMITS, steady)])
    assert sum(shared) == pytest.approx(120.0)
    assert shared == [85.0, 35.0]  # 8.5 and 3.5 starts


def test_the_widest_pair_of_a_duel_decides() -> None:
    one, other = _earlier(0.001, 0.05), _earlier(0.03, 0.001)
    first, second = share_seconds([(LIMITS, one), (LIMITS, other)])
    assert first > second


def test_a_start_that_takes_longer_must_gain_more() -> None:
    quick, slow = _earlier(0.04, start_s=5.0), _earlier(0.04, start_s=15.0)
    first, second = share_seconds([(LIMITS, quick), (LIMITS, slow)])
    assert first / 5.0 > second / 15.0  # more starts


def test_nobody_gets_more_than_the_target_or_the_most_starts_need() -> None:
    narrow = dataclasses.replace(LIMITS, target=0.5)
    shared = share_seconds([(narrow, _earlier(0.01)), (LIMITS, _earlier(9.0, start_s=1.0))])
    assert shared == pytest.approx([120 * 35 / 45.5, 120 * 10.5 / 45.5])


def test_fewest_starts_that_take_longer_than_their_budget_take_no_time_from_others() -> None:
    long, other = _earlier(0.001, start_s=50.0), _earlier(0.05)
    assert share_seconds([(LIMITS, long), (LIMITS, other)]) == [175.0, 55.0]


def test_without_history_nothing_changes(plan: Plan) -> None:
    assert share_budgets(plan, lambda duel: None) == plan
    assert share_seconds([]) == []


def test_the_plan_keeps_its_hashes_and_names_what_changed(plan: Plan) -> None:
    def find(duel: PlannedDuel) -> EarlierDuels | None:
        spread = {"mlp": 0.05, "resnet50": 0.001}.get(duel.workload)
        return None if spread is None else _earlier(spread)

    shared = share_budgets(plan, find)
    by_name = {each.workload: each for each in shared.duels if each.workload in ("mlp", "resnet50")}
    assert [each.limits.budget_s for each in by_name.values()] == [105.0, 35.0]
    assert [each.hash for each in shared.duels] == [each.hash for each in plan.duels]
    assert shared.notes[-1].startswith("the time of 2 duels follows the spread")
    unknown = [each for each in shared.duels if each.workload not in by_name]
    assert all(each in plan.duels for each in unknown)


@pytest.mark.parametrize("num_starts", [3, 4, 6, 9])
@pytest.mark.parametrize("compilations", [1, 3])
def test_the_expected_width_is_that_of_simulated_duels(num_starts: int, compilations: int) -> None:
    rng = np.random.default_rng(num_starts)
    limits = dataclasses.replace(LIMITS, compilations=compilations)
    spread = PairSpread(starts=0.01, compilations=0.01)
    of_starts = [limits.compilation_of(index) for index in range(num_starts)]
    halves = []
    for _ in range(2000):
        offsets = rng.normal(0, spread.compilations, compilations)
        logs = [offsets[each] + rng.normal(0, spread.starts) for each in of_starts]
        halves.append(nested_half_width(logs, of_starts))
    found = math.sqrt(float(np.mean(np.square(halves))))
    assert spread.expect_half_width(limits, num_starts) == pytest.approx(found, rel=0.2)

from __future__ import annotations

import math

import numpy as np
import pytest

from benchcore.verdict.allocations import judge_allocations, locate
from benchcore.verdict.moderation import fit_spread, learn_spread
from benchcore.verdict.samples import SpreadPrior
from benchcore.verdict.starts import judge_starts


def _case(rng: np.random.Generator, truth: float, *, bad: bool = False) -> list[np.ndarray]:
    """Three allocations that differ by 1 %, of ten pairs each; on a bad node one is 20 % off."""
    means = rng.normal(truth, 0.01, 3)
    means[0] += 0.2 * bad
    return [rng.normal(mean, 0.004, 10) for mean in means]


def test_cases_of_one_machine_share_their_spread() -> None:
    rng = np.random.default_rng(1)
    found = fit_spread([rng.normal(0, 0.01, 3) for _ in range(500)])
    assert found is not None
    assert math.sqrt(found.variance) == pytest.approx(0.01, rel=0.05)
    assert found.freedom > 30


def test_cases_that_differ_among_themselves_are_worth_little_to_each_other() -> None:
    """Variances drawn as 4 (0.01)^2 over a chi-square of 4 degrees are worth four."""
    rng = np.random.default_rng(2)
    spreads = 0.01 * np.sqrt(4 / rng.chisquare(4, 800))
    found = fit_spread([rng.normal(0, spread, 8) for spread in spreads])
    assert found is not None
    assert found.freedom == pytest.approx(4, rel=0.25)


def test_few_cases_or_cases_without_spread_give_no_prior() -> None:
    rng = np.random.default_rng(3)
    assert fit_spread([rng.normal(0, 0.01, 3) for _ in range(4)]) is None
    assert fit_spread([np.zeros(3)] * 9) is None
    assert fit_spread([np.zeros(1)] * 9) is None


def test_a_moderated_variance_lies_between_its_own_and_the_priors() -> None:
    """By hand: (6 * 1 + 2 * 5) / 8."""
    assert SpreadPrior(variance=1.0, freedom=6.0).moderate(5.0, 2.0) == (2.0, 8.0)


@pytest.mark.parametrize("bad", [False, True])
def test_other_cases_give_three_allocations_power_and_the_interval_still_covers(bad: bool) -> None:
    rng = np.random.default_rng(4)
    found, covered, alone = 0, 0, 0
    for _ in range(25):
        cases = [_case(rng, 0.02, bad=bad) for _ in range(20)]
        prior = fit_spread([locate(case) for case in cases])
        for case in cases[:5]:
            judged = judge_allocations(case, prior=prior)
            assert judged.low is not None and judged.high is not None
            found += judged.verdict == "different"
            covered += judged.low <= 0.02 <= judged.high
            alone += judge_allocations(case).verdict == "different"
    assert 0.89 <= covered / 125 <= 0.99
    assert found / 125 > (0.55 if bad else 0.85)
    assert alone / 125 < (0.05 if bad else 0.6)


def test_earlier_duels_give_three_starts_power_and_the_interval_still_covers() -> None:
    """Of 1 % of noise each, and of nights that differ by a third: a night alone has 12 to 51 %."""
    for nights in (0.0, 0.3):
        rng = np.random.default_rng(7)
        found, covered, alone = 0, 0, 0
        for _ in range(200):
            noise = 0.01 * np.exp(rng.normal(0, nights, 21))
            duels = [rng.normal(0.02, each, 3).tolist() for each in noise]
            earlier = [(each, (0, 1, 2)) for each in duels[:-1]]
            of_both = [
                judge_starts(duels[-1], 0.0001, compilations=(0, 1, 2), earlier=known)
                for known in (earlier, [])
            ]
            (low, high), (first, last) = [(each.low or 0.0, each.high or 0.0) for each in of_both]
            covered += low <= 0.02 <= high
            found += low > 0
            alone += first > 0
            assert last >= 0
        assert 0.92 <= covered / 200 <= 0.985
        assert found / 200 > 0.8 > 0.6 > alone / 200


def test_starts_that_spread_more_than_the_earlier_ones_are_judged_alone() -> None:
    rng = np.random.default_rng(8)
    earlier = [rng.normal(0, 0.003, 4).tolist() for _ in range(20)]
    assert learn_spread([0.0, 0.003, -0.004], earlier) is not None
    assert learn_spread([0.0, 0.03, -0.04], earlier) is None
    assert learn_spread([0.0, 0.003, -0.004], earlier[:4]) is None
    assert learn_spread([0.0], earlier) is None
    assert learn_spread([0.0, 0.003], [[0.1]] * 20) is None


def test_earlier_duels_are_worth_no_more_than_what_was_measured() -> None:
    rng = np.random.default_rng(9)
    found = learn_spread([0.0, 0.003, -0.004], [rng.normal(0, 0.003, 3).tolist() for _ in range(5)])
    assert found is not None and found.freedom <= 10


def test_duels_of_another_number_of_compilations_inform_nothing() -> None:
    rng = np.random.default_rng(10)
    logs = [0.0, 0.003, -0.004]
    earlier = [(rng.normal(0, 0.003, 3).tolist(), (0, 0, 0)) for _ in range(20)]
    alone = judge_starts(logs, compilations=(0, 1, 2))
    assert judge_starts(logs, compilations=(0, 1, 2), earlier=earlier) == alone
    assert judge_starts(logs, compilations=(0, 0, 0), earlier=earlier) != alone

"""The search for a culprit, with answers that are noisy, missing or inconsistent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from benchcore.verdict.allocations import judge_allocations
from benchcore.verdict.confirmation.version_search import Bisection, bisect
from benchcore.verdict.samples import Judgement

VERSIONS = tuple(f"1.{minor}" for minor in range(16))


class Lab:
    """Measures versions whose logs of a step's time are given, with starts that differ."""

    def __init__(
        self,
        levels: Sequence[float],
        *,
        spread: float = 0.003,
        seed: int = 1,
        broken: Sequence[int] = (),
        noisy: Sequence[int] = (),
    ) -> None:
        self.levels = dict(zip(VERSIONS, levels, strict=False))
        self.versions = VERSIONS[: len(levels)]
        self.broken, self.noisy = ({VERSIONS[each] for each in which} for which in (broken, noisy))
        self.rng, self.spread = np.random.default_rng(seed), spread
        self.known: dict[tuple[str, str, bool], list[np.ndarray]] = {}
        self.num_starts = 0

    def judge(self, old: str, new: str, num_starts: int, fresh: bool) -> Judgement:
        if {old, new} & self.broken:
            return judge_allocations([], prefer="same")
        starts = self.known.setdefault((old, new, fresh), [])
        spread = 0.5 if {old, new} & self.noisy else self.spread
        while len(starts) < num_starts:
            self.num_starts += 1
            middle = self.levels[new] - self.levels[old] + self.rng.normal(0, spread)
            starts.append(middle + self.rng.normal(0, 0.003, 6))
        return judge_allocations(starts, prefer="same")

    def run(self) -> Bisection:
        return bisect(self.versions, self.judge)


def _step(count: int, at: int, size: float = 0.05) -> list[float]:
    return [size * (each >= at) for each in range(count)]


def _named(found: Bisection) -> list[tuple[str, str]]:
    return [(each.before, each.version) for each in found.culprits]


@pytest.mark.parametrize("size", [0.05, -0.05])
@pytest.mark.parametrize("at", range(1, 16))
def test_the_version_that_changed_is_named_and_verified_in_fresh_starts(
    at: int, size: float
) -> None:
    lab = Lab(_step(16, at, size))
    found = lab.run()
    assert (found.verdict, _named(found)) == ("found", [(f"1.{at - 1}", f"1.{at}")])
    effect = found.culprits[0].effect
    assert effect.log_ratio == pytest.approx(size, abs=0.006)
    assert (f"1.{at - 1}", f"1.{at}", True) in lab.known
    assert len([each for each in found.rounds if each.purpose == "search"]) <= 4


def test_the_right_one_is_named_nearly_always_and_a_wrong_one_never_for_sure() -> None:
    rng = np.random.default_rng(5)
    right = wrong = 0
    for seed in range(300):
        at = int(rng.integers(1, 9))
        named = _named(Lab(_step(9, at, 0.03), spread=0.006, seed=seed).run())
        right += named == [(f"1.{at - 1}", f"1.{at}")]
        wrong += any(pair != (f"1.{at - 1}", f"1.{at}") for pair in named)
    assert right >= 270
    assert wrong <= 6


def test_where_nothing_changed_no_version_is_named() -> None:
    verdicts = [Lab([0.0] * 8, seed=seed).run() for seed in range(200)]
    assert {each.verdict for each in verdicts} <= {"same", "unknown"}
    assert not [each for each in verdicts if each.culprits]
    assert all(len(each.rounds) == 1 for each in verdicts)


def test_two_changes_are_both_named() -> None:
    levels = [0.05 * (each >= 3) + 0.08 * (each >= 11) for each in range(16)]
    found = Lab(levels).run()
    assert sorted(_named(found)) == [("1.10", "1.11"), ("1.2", "1.3")]
    assert found.reason == "nothing else changed after the last culprit"


def test_a_culprit_that_is_the_last_version_needs_no_reason() -> None:
    found = Lab(_step(4, 3)).run()
    assert (_named(found), found.reason) == ([("1.2", "1.3")], "")


@pytest.mark.parametrize("away", [(2, 5), (6, 9), (3, 12), (7, 8)])
def test_repeated_changes_yield_a_pair_that_really_changed(
    away: tuple[int, int],
) -> None:
    levels = _step(16, 1)
    for each in range(*away):
        levels[each] = 0.0
    found = Lab(levels).run()
    assert found.verdict == "found"
    for before, version in _named(found):
        low, high = VERSIONS.index(before), VERSIONS.index(version)
        assert (levels[low], levels[high]) == (0.0, 0.05)


def test_a_version_that_cannot_be_measured_is_skipped_and_reported() -> None:
    found = Lab(_step(8, 5), broken=[3, 4]).run()
    assert (found.verdict, _named(found)) == ("found", [("1.2", "1.5")]) or _named(found) == [
        ("1.2", "1.5")
    ]
    assert set(found.culprits[0].undecided) == {"1.3", "1.4"}
    assert [each.num_starts for each in found.rounds if each.new == "1.3"] == [12]


def test_an_unknown_pair_gets_more_starts_and_is_then_reported() -> None:
    lab = Lab(_step(8, 6), noisy=[3])
    found = lab.run()
    (noisy,) = [each for each in found.rounds if each.new == "1.3"]
    assert (noisy.num_starts, noisy.found.verdict) == (12, "unknown")
    assert (found.verdict, _named(found)) == ("found", [("1.5", "1.6")])


def test_undecided_ends_end_the_search() -> None:
    found = Lab(_step(8, 4), noisy=[7]).run()
    assert (found.verdict, found.culprits) == ("unknown", ())
    assert found.reason.startswith("whether good and bad differ is unknown: ")
    assert [each.num_starts for each in found.rounds] == [12]


def _answer_with(answers: Callable[[str, str, bool], float]) -> Callable[..., Judgement]:
    def judge(old: str, new: str, num_starts: int, fresh: bool) -> Judgement:
        level = answers(old, new, fresh)
        rng = np.random.default_rng(num_starts)
        starts = [np.full(6, level) + rng.normal(0, 0.001) for _ in range(num_starts)]
        return judge_allocations(starts, prefer="same")

    return judge


def test_a_culprit_that_fresh_starts_do_not_show_is_not_named() -> None:
    """One wrong answer on the way, such as of a node that was slow for an hour."""
    misled = _answer_with(lambda old, new, fresh: 0.0 if fresh else 0.05)
    found = bisect(VERSIONS[:5], misled)
    assert (found.verdict, found.culprits) == ("unverified", ())
    assert "fresh starts of 1.0 and 1.1 contradict it" in found.reason


def test_a_culprit_whose_effect_changes_sign_in_fresh_starts_is_not_named() -> None:
    found = bisect(VERSIONS[:2], _answer_with(lambda old, new, fresh: -0.05 if fresh else 0.05))
    assert (found.verdict, found.culprits) == ("unverified", ())


def test_an_answer_must_be_as_sure_as_a_confirmation() -> None:
    def judge(old: str, new: str, num_starts: int, fresh: bool) -> Judgement:
        return Judgement(
            verdict="different", log_ratio=0.05, low=0.001, high=0.1, p=0.04, reason=""
        )

    found = bisect(VERSIONS[:4], judge)
    assert (found.verdict, len(found.rounds)) == ("unknown", 1)
    assert "a culprit needs at most 0.01" in found.reason


def test_two_versions_need_no_search() -> None:
    found = Lab(_step(2, 1)).run()
    assert [each.purpose for each in found.rounds] == ["ends", "verify"]
    assert _named(found) == [("1.0", "1.1")]
    with pytest.raises(ValueError, match="wanted at least two versions, got 1"):
        bisect(("1.0",), Lab([0.0]).judge)

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import pytest

from benchcore.verdict.confirmation.decide import (
    ALPHA,
    Finding,
    Start,
    decide,
    pass_false_discovery,
)
from benchcore.verdict.history.conditions import ConditionChange
from benchcore.verdict.history.levels import HistoryLevels
from benchcore.verdict.history.thresholds import SeriesScale

LEVELS = HistoryLevels(before=0.2, after=0.23, a="jax", b="torch")


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The new environments of both sides take `a` and `b` longer; starts differ by `effect`."""

    a: float = 0.0
    b: float = 0.0
    control: float = 0.0
    level: float = 0.2
    effect: float = 0.003
    num: int = 5
    rounds: int = 6
    unchanged: str = ""


def _starts(seed: int = 1, **given: Any) -> list[Start]:
    rng, truth = np.random.default_rng(seed), Truth(**given)
    levels = {"a_old": 0.0, "a_new": truth.a, "control": truth.control}
    levels |= {"b_old": truth.level, "b_new": truth.level + truth.b}
    starts = []
    for _ in range(truth.num):
        shared = rng.normal(0, 0.03)
        times: dict[Any, dict[int, float]] = {}
        for cell, level in levels.items():
            logs = level + shared + rng.normal(0, truth.effect)
            times[cell] = dict(enumerate(np.exp(logs + rng.normal(0, 0.003, truth.rounds))))
        if truth.unchanged:
            times[f"{truth.unchanged}_old"] = times[f"{truth.unchanged}_new"]
        starts.append(times)
    return starts


def _decide(starts: list[Start], *, final: bool = False, levels: HistoryLevels = LEVELS) -> Finding:
    (found,) = decide([(starts, levels)], final=final)
    return found


@pytest.mark.parametrize(
    ("moved", "culprit", "change"),
    [
        ({"a": 0.05}, "a", -0.05),
        ({"b": 0.05}, "b", 0.05),
        ({"a": -0.05}, "a", 0.05),
        ({"a": 0.05, "b": -0.04}, "both", -0.09),
    ],
)
def test_the_framework_that_moved_is_named_with_how_much(
    moved: dict[str, float], culprit: str, change: float
) -> None:
    found = _decide(_starts(**moved))
    assert (found.verdict, found.culprit) == ("confirmed", culprit)
    assert found.change.log_ratio == pytest.approx(change, abs=0.01)
    for side in ("a", "b"):
        effect = getattr(found, side)
        assert effect.low <= moved.get(side, 0.0) <= effect.high
    assert ("JAX by" in found.reason) == ("a" in moved)
    assert ("PyTorch by" in found.reason) == ("b" in moved)


@pytest.mark.parametrize(
    ("nights", "spread", "named"),
    [
        (5, 0.003, "; in the nights the ratio moved by +11.6 %, and these starts do not explain +"),
        (2, 0.003, ""),  # too few for the machine
        (5, 0.02, ""),  # the level of the nights is not certain
        (5, None, ""),
    ],
)
def test_what_the_nights_moved_beyond_a_framework_is_named(
    nights: int, spread: float | None, named: str
) -> None:
    """A release of 6 % and a machine of 5 % in the same night."""
    levels = replace(LEVELS, after=0.31, num_before=20, num_after=nights, spread=spread)
    found = _decide(_starts(b=0.06), levels=levels)
    assert (found.verdict, found.culprit) == ("confirmed", "b")
    assert "; in the nights" not in found.reason if not named else named in found.reason
    assert found.reason.endswith(found.rest) and bool(found.rest) == bool(named)
    plain = _decide(_starts(b=0.06), levels=replace(levels, after=0.26))
    assert "; in the nights" not in plain.reason


def test_the_older_version_of_a_control_is_named_as_such() -> None:
    found = _decide(_starts(b=0.05), levels=replace(LEVELS, a="torch", b="torch (previous)"))
    assert "changed in PyTorch (previous) by +" in found.reason


def test_an_environment_that_is_the_same_can_have_moved_nothing() -> None:
    found = _decide(_starts(b=0.05, unchanged="a"))
    assert (found.verdict, found.culprit, found.a) == ("confirmed", "b", None)
    assert found.change == found.b
    turned = _decide(_starts(a=0.05, unchanged="b"))
    assert turned.change.log_ratio == pytest.approx(-0.05, abs=0.01)
    assert turned.a is not None and turned.change.low == -turned.a.high  # type: ignore[operator]


def test_a_suspicion_without_a_change_is_refuted_and_names_no_side() -> None:
    found = _decide(_starts())
    assert (found.verdict, found.culprit) == ("refuted", "neither")
    assert found.level == pytest.approx(0.2, abs=0.02)


MOVED = HistoryLevels(before=0.2, after=0.26, num_before=20, num_after=5, spread=0.005)


def test_a_lasting_level_with_equal_environments_is_infrastructure() -> None:
    found = _decide(_starts(level=0.26), levels=MOVED)
    assert (found.verdict, found.culprit) == ("confirmed", "infrastructure")
    assert "the ratio is still at the new level: +6" in found.reason


def test_a_lasting_level_names_the_node_that_came_with_it() -> None:
    node = ConditionChange(name="node", old="n1", new="n2")
    found = _decide(_starts(level=0.26), levels=replace(MOVED, changes=(node,)))
    assert found.culprit == "infrastructure"
    assert found.reason.endswith("; since then, but in no night before: node n1 to n2")
    alone = _decide(_starts(level=0.26), levels=MOVED)
    assert "earlier one" not in alone.reason


def test_a_lasting_level_names_the_steps_in_which_it_came() -> None:
    steps = ((date(2026, 1, 21), 0.04), (date(2026, 1, 25), 0.02))
    found = _decide(_starts(level=0.26), levels=replace(MOVED, steps=steps))
    assert found.reason.endswith(", in 2 steps: +4.1 % on 2026-01-21 and +2.0 % on 2026-01-25")


def test_a_return_to_a_level_of_before_is_refuted() -> None:
    found = _decide(_starts(level=0.26), levels=replace(MOVED, known=7))
    assert (found.verdict, found.culprit) == ("refuted", "neither")
    assert found.reason.endswith("the ratio is at a level where it already was for 7 nights")


def test_without_a_new_environment_only_the_level_decides() -> None:
    starts = _starts(level=0.26)
    for start in starts:
        start["a_old"], start["b_old"] = start["a_new"], start["b_new"]
    found = _decide(starts, levels=MOVED)
    assert (found.a, found.b, found.culprit) == (None, None, "infrastructure")


def test_a_level_within_the_spread_of_nights_has_no_culprit() -> None:
    """The nearer of two levels is no evidence: nights of 2 % go that far by themselves."""
    found = _decide(_starts(level=0.26), levels=replace(MOVED, spread=0.02))
    assert (found.verdict, found.culprit) == ("unknown", "unknown")
    assert "whether the machine changed the ratio is open: +6" in found.reason
    soon = _decide(_starts(level=0.26), levels=replace(MOVED, num_after=2))
    assert (soon.verdict, soon.culprit) == ("refuted", "neither")


def test_a_machines_level_is_one_test_of_all_the_nights_tests() -> None:
    """Alone it passes; among many quiet ones the same level is not sure enough."""
    weak = (_starts(level=0.245), replace(MOVED, after=0.245, spread=0.007))
    assert decide([weak], final=True)[0].culprit == "infrastructure"
    quiet = [(_starts(1000 + number), LEVELS) for number in range(30)]
    found = decide([weak, *quiet], final=True)[0]
    assert (found.verdict, found.culprit) == ("unknown", "unknown")


def test_a_moved_control_always_names_the_infrastructure() -> None:
    found = _decide(_starts(b=0.05, control=0.06))
    assert found.culprit == "infrastructure"
    assert "differs from itself by +6" in found.reason


@pytest.mark.parametrize("effect", [0.002, 0.004])
def test_a_control_that_is_off_by_less_than_matters_decides_nothing(effect: float) -> None:
    """Identical environments differ by their order or place: a little, but each time the same."""
    given: dict[str, Any] = {"control": 0.015, "effect": effect, "num": 8}
    still, moved = _decide(_starts(**given)), _decide(_starts(**given, b=0.05))
    assert still.control.low is not None and still.control.low > 0.01
    assert (still.verdict, still.culprit) == ("refuted", "neither")
    assert (moved.verdict, moved.culprit) == ("confirmed", "b")


def test_an_undecided_suspicion_takes_more_starts_until_it_is_unknown() -> None:
    wide = _starts(2, b=0.02, effect=0.03)
    assert [_decide(wide, final=final).verdict for final in (False, True)] == ["more", "unknown"]
    assert _decide(wide).culprit == "unknown"
    for few in ([], _starts(b=0.5, num=1)):
        assert _decide(few).verdict == "more"


def test_more_starts_are_taken_until_it_is_clear_which_side_moved() -> None:
    """The ratio moved by a fifth for sure; of b's share of it five starts know too little."""
    starts = _starts(a=0.2)
    for number, start in enumerate(starts):
        wobble = 1 + 0.02 * (number - 2)
        start["b_new"] = {each: time * wobble for each, time in start["b_new"].items()}  # type: ignore[index]
    found = [_decide(starts, final=final) for final in (False, True)]
    assert found[0].b is not None and found[0].b.verdict == "unknown"
    assert [each.verdict for each in found] == ["more", "confirmed"]


def test_starts_are_the_samples_and_rounds_are_not() -> None:
    """With 200 rounds a start, rounds would be sure of anything."""
    sure = [_decide(_starts(s, effect=0.01, rounds=200)).verdict for s in range(40)]
    assert sure.count("confirmed") <= 2


def test_rounds_that_one_side_lacks_take_no_part() -> None:
    starts = _starts(b=0.05)
    for start in starts:
        start["b_new"][3] *= 50
        del start["b_old"][3]
    assert _decide(starts).b.log_ratio == pytest.approx(0.05, abs=0.01)  # type: ignore[union-attr]


def test_false_discoveries_are_controlled_over_a_nights_suspicions() -> None:
    """By hand, of Benjamini and Hochberg 1995, their table of 15 at 5 %: the first four pass."""
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459]
    p_values += [0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    assert pass_false_discovery(p_values, 0.05) == [True] * 4 + [False] * 11
    shuffled = [p_values[each] for each in (9, 3, 14, 0)]
    assert pass_false_discovery(shuffled, 0.05) == [False, True, False, True]
    assert pass_false_discovery([0.04, 0.05], 0.05) == [True, True]  # each alone would not
    assert pass_false_discovery([None, 1e-9], 0.05) == [False, True]
    assert pass_false_discovery([], 0.05) == []


def test_one_suspicion_of_many_needs_more_than_one_alone() -> None:
    drawn = (_starts(seed, b=0.026, effect=0.006) for seed in range(100))
    weak = next(
        starts
        for starts in drawn
        if (found := _decide(starts)).verdict == "confirmed" and found.change.p > ALPHA / 30  # type: ignore[operator]
    )
    quiet = [(_starts(1000 + number), LEVELS) for number in range(9)]
    assert decide([(weak, LEVELS), *quiet], final=False)[0].verdict == "more"


def test_looks_share_the_error_rate() -> None:
    p = _decide(_starts(b=0.03, effect=0.006, unchanged="a")).change.p
    assert p is not None
    starts = [(_starts(b=0.03, effect=0.006, unchanged="a"), LEVELS)]
    # The control is the second test.
    sure = decide(starts, final=False, num_looks=1, alpha=2.02 * p)
    three = decide(starts, final=False, num_looks=3, alpha=2.02 * p)
    assert (sure[0].verdict, three[0].verdict) == ("confirmed", "more")


def test_the_effect_is_reported_in_percent_of_a_steps_time() -> None:
    found = _decide(_starts(b=math.log(1.4), effect=0.001))
    assert "PyTorch by +40" in found.reason


def _amounts(a_new: float, noise: float = 0.0, seed: int = 2) -> list[Start]:
    """One amount per start and cell; b's environment is unchanged."""
    rng = np.random.default_rng(seed)
    levels = {"a_old": 100.0, "a_new": a_new, "control": 100.0, "b_old": 90.0}
    starts = []
    for _ in range(5):
        start = {cell: {0: level * np.exp(rng.normal(0, noise))} for cell, level in levels.items()}
        starts.append({**start, "b_new": start["b_old"]})
    return starts


def test_amounts_that_agree_to_the_last_digit_are_judged_where_the_metric_is_exact() -> None:
    bytes_, seconds = (
        replace(LEVELS, scale=SeriesScale(smallest=0.02, noise_floor=0.002, exact=exact))
        for exact in (True, False)
    )
    found = _decide(_amounts(120.0), levels=bytes_)
    assert (found.verdict, found.culprit) == ("confirmed", "a")
    assert found.change.low is not None and found.change.high is not None
    assert found.change.low < -math.log(1.2) < found.change.high
    assert _decide(_amounts(100.0), levels=bytes_).verdict == "refuted"
    timed = _decide(_amounts(120.0), levels=seconds)
    assert timed.verdict == "more" and "agree to the last digit" in timed.change.reason


def test_what_is_the_same_depends_on_the_metrics_scale() -> None:
    starts = _amounts(104.0, noise=0.004)
    assert _decide(starts).verdict == "confirmed"
    compile_time = replace(LEVELS, noun="compile time", scale=SeriesScale(smallest=0.05))
    found = _decide(starts, levels=compile_time)
    assert (found.verdict, found.culprit) == ("refuted", "neither")
    assert "have the same compile time" in found.reason


def test_all_metrics_of_a_night_are_one_family() -> None:
    weak = (_amounts(105.0, noise=0.008, seed=11), LEVELS)
    memory = replace(LEVELS, scale=SeriesScale(smallest=0.02, noise_floor=0.002, exact=True))
    quiet = [(_amounts(100.0, noise=0.004, seed=each), memory) for each in range(5, 35)]
    alone, among = decide([weak], final=False)[0], decide([weak, *quiet], final=False)[0]
    assert (alone.verdict, among.verdict) == ("confirmed", "more")


@pytest.mark.parametrize("moved", ["a_new", "control"])
def test_a_few_starts_that_agree_by_chance_need_more_starts(moved: str) -> None:
    """The other contrast of the same starts shows how much they really spread."""
    other = "control" if moved == "a_new" else "a_new"
    spread = np.array([-1.5, 0.5, 1.0, -0.5, 0.5, 1.2, -0.4, -0.8]) / 100
    starts = _starts(num=8, effect=0.0, unchanged="b")
    for number, start in enumerate(starts):
        off = {moved: 0.03 + spread[number] / 50, other: spread[number]}
        for cell, log in off.items():
            start[cell] = {n: time * math.exp(log) for n, time in start["a_old"].items()}
    assert _decide(starts[:5]).verdict != "confirmed"
    assert _decide(starts, final=True).verdict == "confirmed"


def test_equal_environments_refute_nothing_while_the_control_may_have_changed() -> None:
    starts = _starts(num=8, seed=2, control=0.06, effect=0.009)
    first = _decide(starts[:5])
    assert (first.change.verdict, first.control.verdict, first.verdict) == (
        "same",
        "different",
        "more",
    )
    found = _decide(starts)
    assert (found.verdict, found.culprit) == ("confirmed", "infrastructure")

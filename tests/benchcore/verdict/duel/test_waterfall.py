from __future__ import annotations

import pytest

from benchcore.verdict.duel.ratios import ContenderTimes, Exclusion
from benchcore.verdict.duel.waterfall import build_waterfall


def _side(name: str, framework: str, *means: float) -> ContenderTimes:
    """Each start's mean step in ns, the same in every round."""
    starts = {start: dict.fromkeys(range(4), mean) for start, mean in enumerate(means)}
    return ContenderTimes(
        name=name, arm=name, framework=framework, version="1.0", role="newest", starts=starts
    )


EAGER = _side("eager", "torch", 400, 404, 396)
LAST = _side("channels-last", "torch", 200, 203, 199)
COMPILED = _side("compile", "torch", 250, 251, 249)
JAX = _side("jax", "jax", 125, 126, 124)


def test_each_arm_is_compared_with_the_one_before_it() -> None:
    fall = build_waterfall([EAGER, LAST, COMPILED, JAX])
    first, last, compiled, jax = fall.gains
    assert first is None
    assert last is not None
    assert (last.factor, last.verdict) == (pytest.approx(2.0, abs=0.01), "faster")
    assert last.low is not None and last.high is not None
    assert 1.9 < last.low < last.factor < last.high < 2.1
    assert compiled is not None
    assert (compiled.factor, compiled.verdict) == (pytest.approx(0.8, abs=0.01), "slower")
    assert jax is not None
    assert (jax.factor, jax.verdict) == (pytest.approx(2.0, abs=0.01), "faster")


def test_the_steps_of_torch_multiply_to_the_total() -> None:
    fall = build_waterfall([EAGER, LAST, COMPILED, JAX])
    assert fall.whole is not None
    assert fall.whole.factor == pytest.approx(1.6, abs=0.01)
    assert fall.product == pytest.approx(fall.whole.factor)


def test_a_slower_jax_reads_below_one_with_its_interval_in_order() -> None:
    gain = build_waterfall([LAST, EAGER, _side("jax", "jax", 800, 808, 792)]).gains[-1]
    assert gain is not None and gain.low is not None and gain.high is not None
    assert (gain.factor, gain.verdict) == (pytest.approx(0.5), "slower")
    assert gain.low <= gain.high


def test_steps_that_do_not_count_have_no_number_and_no_total() -> None:
    void = Exclusion(frozenset({"channels-last"}), "outputs differ")
    fall = build_waterfall([EAGER, LAST, COMPILED, JAX], [void])
    gains = [each.factor if each else None for each in fall.gains]
    assert gains[:3] == [None, None, None]
    assert gains[3] is not None
    assert "outputs differ" in (fall.gains[1].reason if fall.gains[1] else "")
    assert fall.product is None


def test_a_step_that_does_not_count_leaves_no_product_of_the_others() -> None:
    void = Exclusion(frozenset({"eager", "channels-last"}), "outputs differ")
    fall = build_waterfall([EAGER, LAST, COMPILED, JAX], [void])
    assert fall.gains[2] is not None and fall.gains[2].factor is not None
    assert fall.product is None
    assert fall.whole is not None and fall.whole.factor is not None


def test_one_arm_or_none_has_no_steps() -> None:
    assert build_waterfall([]).gains == ()
    assert build_waterfall([EAGER]).gains == (None,)
    assert build_waterfall([EAGER, JAX]).whole is None

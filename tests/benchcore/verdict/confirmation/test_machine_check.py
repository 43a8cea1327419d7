"""The machine's own probe: whether some starts ran on another machine, and what that explains."""

from __future__ import annotations

import numpy as np
import pytest

from benchcore.verdict.confirmation.decide import Finding, Start, decide
from benchcore.verdict.confirmation.machine_check import check_machine, describe_machine
from benchcore.verdict.history.levels import HistoryLevels

LEVELS = HistoryLevels(before=0.2, after=0.23, a="jax", b="torch")


def _starts(
    machine: list[float],
    effects: list[float] | None = None,
    *,
    seed: int = 1,
    spread: float = 0.01,
    probe: str = "copy",
) -> list[Start]:
    """Starts whose machine is slower by these logs, and whose new torch is by `effects`."""
    rng = np.random.default_rng(seed)
    starts = list[Start]()
    for slower, effect in zip(machine, effects or [0.0] * len(machine), strict=True):
        levels = {"a_old": 0.0, "a_new": 0.0, "control": 0.0, "b_old": 0.2, "b_new": 0.2 + effect}
        levels |= {"gemm": 12.0, "copy": 15.0}
        levels = {cell: level + slower * (cell == probe) for cell, level in levels.items()}
        starts.append(
            {
                cell: dict(enumerate(np.exp(level + rng.normal(0, spread, 6)).tolist()))
                for cell, level in levels.items()
            }
        )
    return starts


def _decide(starts: list[Start], *, final: bool = True) -> Finding:
    (found,) = decide([(starts, LEVELS)], final=final)
    return found


@pytest.mark.parametrize("probe", ["gemm", "copy"])
def test_a_change_that_only_a_slower_machine_shows_is_infrastructure(probe: str) -> None:
    """Two thirds of the starts ran on a node that is slower itself, and only there torch is."""
    slow = [0.3] * 8 + [0.0] * 4
    effects = [0.3 if each else 0.0 for each in slow]
    starts = _starts(slow, effects, probe=probe)
    found = _decide(starts)
    assert (found.verdict, found.culprit) == ("confirmed", "infrastructure")
    assert found.machine is not None
    assert found.machine.slow == tuple(range(8))
    moved = getattr(found.machine, probe)
    assert moved.verdict == "different"
    assert moved.low < 0.3 < moved.high
    assert "without a framework, took up to 1.3" in found.reason
    assert "in 8 of 12 starts, and the others do not show it" in found.reason
    assert _decide(starts, final=False).verdict == "more"  # the next starts may be healthy


def test_the_same_change_on_a_steady_machine_is_the_frameworks() -> None:
    effects = [0.3] * 8 + [0.0] * 4
    found = _decide(_starts([0.0] * 12, effects))
    assert (found.verdict, found.culprit) == ("confirmed", "b")
    assert found.machine is not None and found.machine.slow == ()


def test_a_change_that_steady_starts_show_as_well_is_the_frameworks() -> None:
    found = _decide(_starts([0.3] * 4 + [0.0] * 8, [0.1] * 12))
    assert (found.verdict, found.culprit) == ("confirmed", "b")
    assert found.machine is not None and found.machine.slow == (0, 1, 2, 3)


def test_a_change_that_slow_starts_show_like_the_only_steady_one_is_the_frameworks() -> None:
    """One start alone shows nothing; but it does not differ from the others."""
    found = _decide(_starts([0.3] * 11 + [0.0], [0.1] * 12))
    assert found.machine is not None and len(found.machine.slow) == 11
    assert (found.verdict, found.culprit) == ("confirmed", "b")
    other = _decide(_starts([0.3] * 11 + [0.0], [0.1] * 11 + [0.0]))
    assert (other.verdict, other.culprit) == ("confirmed", "infrastructure")


def test_a_slower_machine_on_which_nothing_changed_is_no_event() -> None:
    found = _decide(_starts([0.3] * 4 + [0.0] * 8))
    assert (found.verdict, found.culprit) == ("refuted", "neither")


def test_an_unknown_result_on_a_changing_machine_has_a_reason() -> None:
    found = _decide(_starts([0.3, 0.3, 0.0, 0.0, 0.0], [0.3, 0.3, 0.0, 0.0, 0.0]))
    assert (found.verdict, found.culprit) == ("unknown", "infrastructure")
    assert "in 2 of 5 starts" in found.reason


def test_a_machine_with_ordinary_noise_is_not_slower() -> None:
    """Starts that differ by 2 %, and rounds by 5 %: the interval decides, and the bound."""
    blamed = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        machine = check_machine(_starts(rng.normal(0, 0.02, 12).tolist(), seed=seed, spread=0.05))
        assert machine is not None
        blamed += bool(machine.slow)
    assert not blamed


def test_without_a_probe_the_machine_is_not_judged() -> None:
    starts = [
        {cell: rounds for cell, rounds in start.items() if cell not in ("gemm", "copy")}
        for start in _starts([0.0] * 5, [0.1] * 5)
    ]
    found = _decide(starts)
    assert (found.machine, found.culprit) == (None, "b")
    assert check_machine(_starts([0.0])) is None


def test_a_steady_machine_is_reported_with_its_interval() -> None:
    machine = check_machine(_starts([0.0] * 5))
    assert machine is not None
    words = describe_machine(machine)
    assert words.startswith("the machine itself, without a framework, took 1.0")
    assert "for a matrix product (" in words and words.endswith("in the slowest of 5 starts")

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from benchcore.verdict import starts
from benchcore.verdict.samples import Judgement
from benchcore.verdict.starts import certify, judge_starts


@pytest.mark.parametrize(
    ("logs", "certificate"),
    [
        ([0.001, -0.002, 0.0, 0.002, 0.001], "unchanged"),
        ([0.05, 0.051, 0.052, 0.049], "better"),
        ([-0.05, -0.051, -0.052, -0.049], "worse"),
        ([0.03, -0.03, 0.02, 0.0], "not shown"),  # nothing noticed, and nothing shown
        ([0.014, 0.0139, 0.0141], "better"),  # would be unchanged, if three agreed by no chance
        ([0.001, 0.001], "not shown"),
        ([], "not shown"),
    ],
)
def test_unchanged_is_certified_only_if_it_is_shown(logs: list[float], certificate: str) -> None:
    certified, found = certify(logs)
    assert certified == certificate
    assert found.reason


def test_a_change_of_3_percent_is_hardly_ever_certified_unchanged() -> None:
    rng = np.random.default_rng(1)
    certified = [certify(rng.normal(math.log(1.03), 0.01, 5))[0] for _ in range(500)]
    assert certified.count("unchanged") <= 2


def test_the_bound_can_be_set() -> None:
    logs = [0.029, 0.031, 0.03, 0.032, 0.028]
    assert (certify(logs)[0], certify(logs, 0.1)[0]) == ("better", "unchanged")


@pytest.mark.parametrize(("compilations", "judged"), [((0, 1, 2, 3), 1), ((0, 0, 1, 1), 2)])
def test_starts_that_are_compilations_are_judged_once(
    monkeypatch: pytest.MonkeyPatch, compilations: tuple[int, ...], judged: int
) -> None:
    seen: list[int] = []
    judge = starts.judge_samples

    def count(samples: np.ndarray, *how: float, **more: Any) -> Judgement:
        seen.append(len(samples))
        return judge(samples, *how, **more)

    monkeypatch.setattr(starts, "judge_samples", count)
    logs = (0.031, 0.029, 0.030, 0.034)
    earlier = [([each * k for each in logs], compilations) for k in (1.0, 1.1, 0.9, 1.2, 0.8, 1.3)]
    found = judge_starts(logs, compilations=compilations, earlier=earlier)
    assert len(seen) == judged and "spread of 6 earlier duels" in found.reason

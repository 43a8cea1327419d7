from __future__ import annotations

import math

import numpy as np
import pytest

from benchcore.verdict.starts import certify


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

from __future__ import annotations

import math

from benchcore.verdict.accuracy import LIMIT_Z, accuracy_z


def test_accuracies_are_held_against_chance_over_so_many_images() -> None:
    error = math.sqrt(2 * 0.5 * 0.5 / 1000)
    assert math.isclose(accuracy_z(520, 480, 1000), 0.04 / error)
    assert accuracy_z(8, 11, 32) < LIMIT_Z < accuracy_z(800, 1100, 3200)


def test_where_all_or_none_are_right_nothing_is_apart() -> None:
    assert accuracy_z(0, 0, 10) == accuracy_z(10, 10, 10) == 0.0
    assert accuracy_z(0, 10, 10) > LIMIT_Z

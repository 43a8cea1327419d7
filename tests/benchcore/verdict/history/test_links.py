from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tiny_series import make_night

from benchcore.verdict.history.series import Night, link_controls, make_series
from benchcore.verdict.history.suspicions import suspect

ROLLED = 60


def _list_nights(patched: int) -> Iterator[Night]:
    """The control is version 0, from night 60 on version 1. The night `patched` gave version 1
    another package, with which it is 5 % faster; version 2 is as fast."""
    noise = np.random.default_rng(3).normal(0, 0.004, 90)
    for number in range(90):
        is_patched = number >= patched
        level = 0.0 if number >= ROLLED else 0.05 * is_patched
        night = make_night(number, float(noise[number] + level))
        new, old = ("2", "1") if number >= ROLLED else ("1", "0")
        patch = "new" if is_patched else "old"
        versions = {"a_version": new, "b_version": old}
        yield replace(night, **versions, a_environment=f"{new}-{patch}", b_environment=old)


@pytest.mark.parametrize("patched", [5, 50, 57])
def test_a_control_is_linked_at_the_level_that_it_had_last(patched: int) -> None:
    """The median of all its nights would be the level before the package."""
    linked = link_controls(_list_nights(patched))
    assert {each.offset for each in linked[:ROLLED]} == {0.0}
    assert [each.offset for each in linked[ROLLED:]] == pytest.approx([0.05] * 30, abs=0.004)
    rolled = linked[ROLLED].number
    assert not [each for each in suspect(make_series(linked)) if each.since.number == rolled]


def test_a_package_of_the_last_two_nights_is_too_new_to_link_by() -> None:
    linked = link_controls(_list_nights(ROLLED - 2))
    assert linked[-1].offset == pytest.approx(0.0, abs=0.004)


@pytest.mark.parametrize("every", [1, 4, 12])
def test_environments_that_change_nothing_leave_a_control_linked_by_all_its_nights(
    every: int,
) -> None:
    """Of few nights a level is less certain, and each release would add its error."""
    logs = np.random.default_rng(4).normal(0, 0.01, 90)
    nights: list[Night] = []
    for number, log in enumerate(logs.tolist()):
        new, old = ("2", "1") if number >= ROLLED else ("1", "0")
        night = make_night(number, log, a_version=new, b_version=old)
        nights.append(replace(night, a_environment=f"{new}-{number // every}", b_environment=old))
    linked = link_controls(nights)
    assert linked[-1].offset == pytest.approx(float(np.median(logs[:ROLLED])))

"""Each kind of unsteady noise is what its name says."""

from __future__ import annotations

import numpy as np
import pytest
import unsteady


@pytest.mark.parametrize("kind", [unsteady.STEADY, *unsteady.KINDS])
def test_each_kind_differs_from_independent_nights(kind: str) -> None:
    found = unsteady.draw(np.random.default_rng(1), kind, 365)
    assert found.scale.shape == found.common.shape == (365,)
    is_steady = bool(np.all(found.scale == 1.0) and np.all(found.common == 0.0))
    assert is_steady == (kind == unsteady.STEADY)


def test_two_machines_stay_for_days_and_correlated_nights_are_correlated() -> None:
    rng = np.random.default_rng(2)
    machines = unsteady.draw(rng, "two machines", 365).common
    assert len(np.unique(machines)) == 2
    assert 10 < np.count_nonzero(np.diff(machines)) < 110
    nights = unsteady.draw(rng, "correlated", 3650).common
    assert np.corrcoef(nights[1:], nights[:-1])[0, 1] == pytest.approx(0.5, abs=0.05)
    assert nights.std() == pytest.approx(1.0, abs=0.08)


def test_a_machine_that_stays_again_has_returned() -> None:
    """Two nights in a row are no stay."""
    machine = np.array([0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1])
    found = [unsteady.has_returned(machine, night) for night in (3, 8, 11, 15, 18)]
    assert found == [False, False, False, True, True]
    assert not unsteady.has_returned(machine, 13)  # one night is no stay: that of before goes on
    assert not unsteady.has_returned(machine[:2], 1)

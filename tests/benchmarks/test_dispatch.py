"""The arithmetic of the benchmark of calls."""

from __future__ import annotations

from dispatch import describe


def test_a_way_is_reported_by_its_median_and_against_the_quickest() -> None:
    quick, slow = describe("jax", {"arrays": [10e3, 9e3, 90e3], "module": [40e3, 30e3, 20e3]})
    assert (quick["median_us"], quick["of_quickest"]) == (10.0, 1.0)
    assert (slow["median_us"], slow["of_quickest"]) == (30.0, 3.0)
    assert slow["quartiles_us"] == [20.0, 40.0]

"""The whole way from a suspicion to an event, small and seeded."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import chain
import numpy as np
import pytest
from chain import Event, Outcome, SimulatedSeries, Site, Truth, simulate
from chain_rates import rate

SMALL = chain.SHORT


def test_true_shifts_become_events_and_hardly_anything_else_does() -> None:
    outcome = simulate(SMALL)
    row = rate(outcome)[0]
    assert (row["framework shifts"], row["machine shifts"]) == (6, 2)
    assert (row["framework found"], row["machine found"]) == (6, 2)
    assert row["wrongly blamed"] == 0
    assert row["false"] <= 1
    assert row["starts"] >= 5 * len(outcome.events)


def test_false_and_repeated_events_are_counted() -> None:
    """Every event that is near no change is false, and so is a second one of a change."""
    outcome = Outcome(site=SMALL, series=simulate(replace(SMALL, nights=19)).series)
    number = next(n for n, one in enumerate(outcome.series) if one.truths)
    truth = outcome.series[number].truths[0]
    quiet = next(n for n, one in enumerate(outcome.series) if not one.truths)
    right = Event(
        series=number, night=18, since=truth.night, trigger="shift", culprit=truth.culprit
    )
    wrong = replace(right, series=quiet, culprit="infrastructure")
    outcome.events = [right, replace(right, night=20), wrong]
    row = rate(outcome)[0]
    assert (row["framework found"], row["opened again"], row["false"]) == (1, 1, 1)
    assert row["false infrastructure"] == 1
    outcome.events = [replace(right, culprit="infrastructure")]
    assert rate(outcome)[0]["wrongly blamed"] == 1


def test_false_events_of_returns_and_of_first_stays_are_counted_apart() -> None:
    site = Site(series=6, nights=10, shifts=0, machine_shifts=0, kinds=("two machines",))
    outcome = simulate(site)
    one = outcome.series[0]
    assert one.unsteadiness is not None
    machine = np.repeat([0, 1, 0], [8, 6, 6])
    one.unsteadiness = replace(one.unsteadiness, machine=machine)
    first = Event(series=0, night=11, since=8, trigger="shift", culprit="infrastructure")
    outcome.events = [first, replace(first, night=17, since=14), replace(first, culprit="a")]
    row = rate(outcome)[0]
    assert (row["false"], row["false infrastructure"]) == (3, 2)
    assert row["false of a machine's first stay"] == row["false of a machine's return"] == 1


def _run(
    monkeypatch: pytest.MonkeyPatch, releases: tuple[int, ...], truths: list[Truth], off: int = 0
) -> list[tuple[int, str]]:
    """The events (night of the change, culprit) of 4 series of 22 nights with these changes, and
    an outlier in night `off`."""
    monkeypatch.setattr(chain, "RELEASES", releases)
    site = Site(series=4, nights=22, shifts=0, machine_shifts=0)
    outcome = Outcome(site=site, series=[])
    rng = np.random.default_rng(6)
    for number in range(site.series):
        state = rng.normal(0.0, 0.003, site.nights)
        if off:
            state[off] += 0.06
        one = SimulatedSeries(
            noise=0.003,
            state="independent",
            bimodal=False,
            share=0.0,
            apart=0.0,
            truths=truths,
            state_of_night=state,
        )
        one.nights = tuple(chain._make_nights(rng, one, number))
        outcome.series.append(one)
    for night in range(site.nights):
        chain._run_night(outcome, night)
    return [(event.since, event.culprit) for event in outcome.events]


@pytest.mark.parametrize("second", [0.05, -0.05])
def test_two_releases_three_nights_apart_are_blamed_one_by_one(
    monkeypatch: pytest.MonkeyPatch, second: float
) -> None:
    truths = [
        Truth(night=14, culprit="a", log_ratio=0.05),
        Truth(night=17, culprit="b", log_ratio=second),
    ]
    found = Counter(_run(monkeypatch, (14, 17), truths))
    assert found == {(14, "a"): 4, (17, "b"): 4}


def test_an_outlier_after_a_confirmed_release_does_not_confirm_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for off in (16, 18, 19):
        truths = [Truth(night=14, culprit="a", log_ratio=0.05)]
        assert Counter(_run(monkeypatch, (14,), truths, off)) == {(14, "a"): 4}

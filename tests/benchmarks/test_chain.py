"""The whole way from a suspicion to an event, small and seeded."""

from __future__ import annotations

from dataclasses import replace

from chain import Event, Outcome, Site, rate, simulate

SMALL = Site(series=42, nights=26, shifts=6, machine_shifts=0, seed=4)


def test_true_shifts_become_events_and_hardly_anything_else_does() -> None:
    outcome = simulate(SMALL)
    row = rate(outcome)[0]
    assert row["framework shifts"] == 6
    assert row["framework found"] >= 5
    assert row["wrongly blamed"] == 0
    assert row["false"] <= 1
    assert row["starts"] >= 5 * len(outcome.events)


def test_false_and_repeated_events_are_counted() -> None:
    """Every event that is near no change is false, and so is a second one of a change."""
    outcome = Outcome(site=SMALL, series=simulate(replace(SMALL, nights=15)).series)
    number = next(n for n, one in enumerate(outcome.series) if one.truths)
    truth = outcome.series[number].truths[0]
    quiet = next(n for n, one in enumerate(outcome.series) if not one.truths)
    right = Event(
        series=number, night=14, since=truth.night, trigger="shift", culprit=truth.culprit
    )
    wrong = replace(right, series=quiet, culprit="infrastructure")
    outcome.events = [right, replace(right, night=16), wrong]
    row = rate(outcome)[0]
    assert (row["framework found"], row["opened again"], row["false"]) == (1, 1, 1)
    assert row["false infrastructure"] == 1
    outcome.events = [replace(right, culprit="infrastructure")]
    assert rate(outcome)[0]["wrongly blamed"] == 1

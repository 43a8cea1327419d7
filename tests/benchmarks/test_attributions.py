"""The arithmetic of the simulation of confirmations."""

from __future__ import annotations

from collections import Counter

from attributions import EFFECTS, TRUTHS, confirm, rate, simulate

from benchcore.verdict.confirmation.decide import LOOKS


def test_every_truth_is_simulated_and_its_rates_add_up() -> None:
    suspected = list(simulate(1, 4))
    assert Counter(each.culprit for each in suspected) == dict.fromkeys(TRUTHS, 4 * len(EFFECTS))
    findings = [confirm(each) for each in suspected]
    assert all(found.num_starts in LOOKS for found in findings)
    rows = rate(suspected, findings)
    assert len(rows) == len(TRUTHS) * len(EFFECTS)
    for row in rows:
        assert abs(row["confirmed"] + row["refuted"] + row["unknown"] - 1) < 1e-9
    quiet = [row for row in rows if row["effect"] == 0.0]
    by_truth = {row["truth"]: row for row in quiet}
    assert by_truth["nothing"]["refuted"] == 1.0
    for moved in ("a", "b", "both"):
        assert (by_truth[moved]["confirmed"], by_truth[moved]["right of the confirmed"]) == (1, 1)


def test_where_nothing_changed_the_levels_are_those_of_a_history_that_was_suspected() -> None:
    null = [each.levels for each in simulate(2, 2) if each.culprit == "nothing"]
    assert len({each.after for each in null}) == len(null)
    assert all(each.num_before > 2 for each in null)
    furthest = [max(abs(night - each.before) for night in each.since) for each in null]
    assert min(furthest) > 0.02

"""The benchmark of a duel's interval: what earlier duels change, and what other cases would."""

from __future__ import annotations

import coverage
import pytest

from benchcore.protocol import DuelLimits


def test_earlier_duels_narrow_the_interval_and_noisier_cases_need_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = ("no offset", "1 % per compilation")
    monkeypatch.setattr(coverage, "KINDS", {each: coverage.KINDS[each] for each in kinds})
    monkeypatch.setattr(coverage, "LIMITS", {"a night": DuelLimits(max_starts=10)})
    rows = {(row["kind"], row["noise"]): row for row in coverage.measure(1, 140)}
    assert len(rows) == 4
    noisy = rows["1 % per compilation", 0.003]
    assert noisy["half width, earlier"] < 0.75 * noisy["half width"]
    assert noisy["power at 2%, earlier"] > noisy["power at 2%"] + 0.2
    assert noisy["coverage, earlier"] > 0.88
    assert noisy["coverage, other cases"] < noisy["coverage, earlier"]
    assert "coverage, quieter" in rows["no offset", 0.01]
    assert "coverage, quieter" not in noisy

"""Every constant is varied both ways in all its modules, and put back."""

from __future__ import annotations

import chain
import constants
import pytest
from constants import BRIDGE, CONFIRMATION, DETECTOR, EARLIER, JUDGING, PROBE, vary

from benchcore.verdict.history import change_points, levels, suspicions


@pytest.mark.parametrize("of_part", [DETECTOR, CONFIRMATION, PROBE, BRIDGE, JUDGING, EARLIER])
def test_each_constant_has_half_and_double_and_is_put_back(
    of_part: tuple[constants.Constant, ...],
) -> None:
    before = [[getattr(module, name) for module in modules] for modules, name in of_part]
    assert all(len({*values}) == 1 for values in before)  # one value in all of its modules
    rows = vary(lambda: {"macro": 1.0}, of_part)
    assert len(rows) == 1 + 2 * len(of_part)
    after = [[getattr(module, name) for module in modules] for modules, name in of_part]
    assert after == before


def test_the_figures_are_taken_with_the_constant_changed() -> None:
    margins: list[float] = []

    def measure() -> dict[str, float]:
        margins.append(change_points.SHIFT_MARGIN)
        return {}

    vary(measure, DETECTOR[:1])
    assert margins == [margins[0], margins[0] / 2, margins[0] * 2]
    nights: list[tuple[int, int]] = []
    of_levels = [each for each in CONFIRMATION if each[1] in ("LEVEL_NIGHTS", "LOOKS")]

    def look() -> dict[str, float]:
        assert suspicions.LEVEL_NIGHTS == levels.LEVEL_NIGHTS
        nights.append((levels.LEVEL_NIGHTS, chain.LOOKS[0]))
        return {}

    vary(look, of_levels)
    assert nights == [(10, 5), (10, 2), (10, 10), (5, 5), (20, 5)]


def test_a_small_site_is_rated_with_its_detector_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = tuple(
        chain.Site(series=6, nights=14, shifts=0, machine_shifts=0, seed=seed) for seed in (1, 2)
    )
    monkeypatch.setattr(constants, "SITES", sites)
    monkeypatch.setattr(constants, "CONFIRMATION", CONFIRMATION[4:6])
    monkeypatch.setattr(constants, "PROBE", ())
    monkeypatch.setattr(constants, "BRIDGE", ())
    monkeypatch.setattr(constants, "_REPEATS", 8)
    constants._detect_once.cache_clear()
    rows = constants.vary_chain()
    assert [row["factor"] for row in rows] == [1.0, 0.5, 2.0, 0.5, 2.0, 1.0, 1.0]
    assert constants._detect_once.cache_info().misses == 2 * 6 * 14
    assert rows[0]["false"] == 0 and rows[0]["starts"] >= 0
    assert rows[-2]["b is blamed, truth b"] > 0.7 > 0.3 > rows[-2]["b is blamed, truth nothing"]
    assert rows[-1]["bridged, 0%"] < 0.1 < 0.4 < rows[-1]["bridged, 5%"]


def test_the_constants_of_paired_times_are_rated_alone_and_in_folders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constants, "JUDGING", JUDGING[:1])
    monkeypatch.setattr(constants, "_TRIALS", 1)
    monkeypatch.setattr(constants, "_DUELS", 45)
    as_is, half, *_ = constants.vary_judging()
    assert as_is["different at 0%, folder"] < 0.3 < 0.6 < as_is["different at 2%, folder"]
    assert as_is["coverage, alone"] > 0.9 < half["coverage, alone"] != as_is["coverage, alone"]

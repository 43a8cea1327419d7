"""Every constant is varied both ways, and put back."""

from __future__ import annotations

from constants import CONSTANTS, vary

from benchcore.verdict.history import change_points


def test_each_constant_has_half_and_double_and_is_put_back() -> None:
    before = [getattr(module, name) for module, name in CONSTANTS]
    seen: list[float] = []

    def measure() -> dict[str, float]:
        seen.append(change_points.SHIFT_MARGIN)
        return {"macro": 1.0}

    rows = vary(measure)
    assert len(rows) == 1 + 2 * len(CONSTANTS)
    assert seen[:3] == [before[0], before[0] / 2, before[0] * 2]
    assert [getattr(module, name) for module, name in CONSTANTS] == before

"""What each hand-set constant of the detector buys: the figures with half and double of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from benchcore.verdict.history import certainty, change_points, detect, modes, noise

CONSTANTS: tuple[tuple[ModuleType, str], ...] = (
    (change_points, "SHIFT_MARGIN"),
    (change_points, "_EDGE_BONUS"),
    (change_points, "_FIRST_MALUS"),
    (change_points, "_WITHOUT_LAST"),
    (change_points, "_DEGREE_COST"),
    (change_points, "RAMP_NIGHTS"),
    (change_points, "SPELL_NIGHTS"),
    (change_points, "SPELL_GAIN"),
    (certainty, "_LAGS"),
    (certainty, "_LAG_BIAS"),
    (certainty, "_NEAR"),
    (detect, "_LINE_COSTS"),
    (detect, "_BEND_COSTS"),
    (detect, "EDGE_DEVIATIONS"),
    (noise, "_OUTLIER"),
    (noise, "MOST_OUTLIERS"),
    (noise, "_CLIP"),
    (noise, "_NOISE_PENALTY"),
    (modes, "_APART"),
)


def vary(measure: Callable[[], Mapping[str, float]]) -> list[dict[str, Any]]:
    """A row as it is, and one per constant and factor; `measure` runs the detector."""
    rows: list[dict[str, Any]] = [{"constant": "as it is", "factor": 1.0, **measure()}]
    for module, name in CONSTANTS:
        for factor in (0.5, 2.0):
            with _multiply(module, name, factor):
                rows.append({"constant": name.strip("_"), "factor": factor, **measure()})
    return rows


@contextmanager
def _multiply(module: ModuleType, name: str, factor: float) -> Iterator[None]:
    value = getattr(module, name)
    setattr(module, name, type(value)(value * factor))
    try:
        yield
    finally:
        setattr(module, name, value)

"""What each hand-set constant buys: the figures with half and double of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import attributions
import chain
import chain_rates
import numpy as np
import unsteady

from benchcore.verdict.confirmation import decide, machine_check
from benchcore.verdict.history import (
    certainty,
    change_points,
    detect,
    levels,
    matching,
    modes,
    noise,
    suspicions,
)
from benchcore.verdict.history.detect import Detection, detect_shifts

Constant = tuple[tuple[ModuleType, ...], str]
"""Its name, and the modules that have it under this name."""
DETECTOR: Sequence[Constant] = (
    ((change_points,), "SHIFT_MARGIN"),
    ((change_points,), "_EDGE_BONUS"),
    ((change_points,), "_FIRST_MALUS"),
    ((change_points,), "_WITHOUT_LAST"),
    ((change_points,), "_DEGREE_COST"),
    ((change_points,), "RAMP_NIGHTS"),
    ((change_points,), "SPELL_NIGHTS"),
    ((change_points,), "SPELL_GAIN"),
    ((certainty,), "_LAGS"),
    ((certainty,), "_LAG_BIAS"),
    ((certainty,), "_NEAR"),
    ((detect,), "_LINE_COSTS"),
    ((detect,), "_BEND_COSTS"),
    ((detect,), "EDGE_DEVIATIONS"),
    ((noise,), "_OUTLIER"),
    ((noise,), "MOST_OUTLIERS"),
    ((noise,), "_CLIP"),
    ((noise,), "_NOISE_PENALTY"),
    ((modes,), "_APART"),
)
CONFIRMATION: Sequence[Constant] = (
    ((chain,), "LOOKS"),
    ((chain,), "ALPHA"),
    ((decide,), "_FEW_STARTS"),
    ((suspicions, decide, machine_check, levels), "LASTING_NIGHTS"),
    ((machine_check,), "_FAR"),
    ((machine_check,), "_LONGER"),
    ((levels,), "_CERTAIN"),
    ((levels,), "_ALIKE"),
    ((levels,), "_KNOWN_NIGHTS"),
    ((levels,), "_FAR"),
    ((levels,), "_MOST_CORRELATED"),
    ((levels,), "_RECENT"),
    ((levels,), "_GROWN"),
    ((suspicions, levels), "LEVEL_NIGHTS"),
    ((suspicions,), "DRIFT_DEVIATIONS"),
    ((suspicions,), "UNSURE_NIGHTS"),
    ((suspicions,), "VERSION_ALPHA"),
    ((suspicions,), "VERSION_MODES_ALPHA"),
    ((suspicions,), "EXCLUDED_ALPHA"),
    ((suspicions,), "VERSION_NIGHTS"),
    ((suspicions,), "VERSION_BEFORE"),
    ((suspicions,), "FEWEST_BEFORE"),
    ((suspicions, matching, levels), "SAME_SHIFT_NIGHTS"),
    ((matching,), "TRACE_NIGHTS"),
    ((matching,), "_LONGER"),
)
PROBE: Sequence[Constant] = (
    ((machine_check,), "PROBE_BOUND"),
    ((machine_check,), "_ALPHA"),
    ((machine_check,), "_FEWEST_ROUNDS"),
    ((decide,), "_DIFFER_ALPHA"),
)
SITES = (
    chain.Site(series=450, nights=36, shifts=30, machine_shifts=45, seed=51, only_shifted=True),
    chain.Site(
        series=48,
        nights=90,
        shifts=0,
        machine_shifts=0,
        seed=52,
        kinds=(unsteady.STEADY, *unsteady.KINDS),
    ),
)
"""Small ones: series that all shift, and series with unsteady noise that do not."""
_REPEATS = 50
"""Suspicions of each kind with a probe of the machine."""
_COUNTED = (
    *("framework found", "framework in 3 nights", "machine found", "machine in 3 nights"),
    *("wrongly blamed", "opened again", "false"),
)


def vary(
    measure: Callable[[], Mapping[str, float]], constants: Sequence[Constant]
) -> list[dict[str, Any]]:
    """A row as it is, and one per constant and factor."""
    rows: list[dict[str, Any]] = [{"constant": "as it is", "factor": 1.0, **measure()}]
    for modules, name in constants:
        for factor in (0.5, 2.0):
            with _multiply(modules, name, factor):
                value = getattr(modules[0], name)
                named = f"{modules[-1].__name__.split('.')[-1]}.{name.strip('_')}"
                rows.append({"constant": named, "factor": factor, "value": value, **measure()})
    return rows


@contextmanager
def _multiply(modules: Sequence[ModuleType], name: str, factor: float) -> Iterator[None]:
    value = getattr(modules[0], name)
    with ExitStack() as stack:
        for module in modules:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, _scale(value, factor))
        yield


def _scale(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_scale(each, factor) for each in value)
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def vary_confirmation() -> list[dict[str, Any]]:
    """The constants of the way from a history to an event, over `SITES`; then those of the probe.
    What the detector finds does not depend on them, so it is found once."""
    found = chain.detect_shifts
    chain.detect_shifts = _detect
    try:
        rows = vary(_measure_sites, CONFIRMATION)
    finally:
        chain.detect_shifts = found
    return rows + vary(_measure_probe, PROBE)


def _detect(values: np.ndarray, nights: np.ndarray) -> Detection:
    return _detect_once(values.tobytes(), nights.tobytes())


@cache
def _detect_once(values: bytes, nights: bytes) -> Detection:
    return detect_shifts(np.frombuffer(values), np.frombuffer(nights))


def _measure_sites() -> dict[str, float]:
    rows = [chain_rates.rate(chain.simulate(site))[0] for site in SITES]
    counts = {name: sum(row[name] for row in rows) for name in (*_COUNTED, "starts")}
    return counts | {"false, unsteady": rows[1]["false"]}


def _measure_probe() -> dict[str, float]:
    """Shares of suspicions in which a framework is blamed: of those that only slow machines show,
    and of those in which it moved by 3 %."""
    suspected = list(attributions.simulate_slow(53, _REPEATS))
    rates: dict[str, float] = {}
    for culprit in ("nothing", "b"):
        found = [attributions.confirm(each) for each in suspected if each.culprit == culprit]
        blamed = [each.verdict == "confirmed" and each.culprit == "b" for each in found]
        rates[f"b is blamed, truth {culprit}"] = float(np.mean(blamed))
        rates[f"starts, truth {culprit}"] = float(np.mean([each.num_starts for each in found]))
    return rates

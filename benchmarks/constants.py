"""What each hand-set constant buys: the figures with half and double of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import attributions
import chain
import chain_rates
import coverage
import judges
import numpy as np
import unsteady

from benchcore.verdict import allocations, moderation
from benchcore.verdict.confirmation import decide, machine_check
from benchcore.verdict.history import (
    bridges,
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
from benchcore.verdict.history.series import Night

Constant = tuple[tuple[ModuleType, ...], str]
"""Its name, and the modules that have it under this name."""
DETECTOR: Sequence[Constant] = (
    ((change_points,), "SHIFT_MARGIN"),
    ((change_points,), "_EDGE"),
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
    ((detect,), "_MOST_BENDS"),
    ((detect,), "_NIGHTS_BEFORE"),
    ((detect,), "_DOUBTED"),
    ((detect,), "EDGE_DEVIATIONS"),
    ((noise,), "_OUTLIER"),
    ((noise,), "MOST_OUTLIERS"),
    ((noise,), "_CLIP"),
    ((noise,), "_NOISE_PENALTY"),
    ((noise,), "_FEWEST_OF_A_NOISE"),
    ((noise, levels), "MOST_CORRELATED"),
    ((modes,), "_FEWEST_NIGHTS"),
    ((modes,), "_LEAST_SHARE"),
    ((modes,), "_APART"),
    ((modes,), "_FEW"),
    ((modes,), "_FEWEST_CHANGES"),
)
CONFIRMATION: Sequence[Constant] = (
    ((chain,), "LOOKS"),
    ((chain,), "ALPHA"),
    ((decide,), "_FEW_STARTS"),
    ((suspicions, decide, machine_check, levels), "LASTING_NIGHTS"),
    ((machine_check,), "_FAR"),
    ((machine_check,), "_LONGER"),
    ((levels,), "CERTAIN"),
    ((levels,), "NEAR_SHARE"),
    ((levels,), "KNOWN_NIGHTS"),
    ((levels,), "_FAR"),
    ((noise, levels), "MOST_CORRELATED"),
    ((levels,), "_RECENT"),
    ((levels,), "_GROWN"),
    ((suspicions, levels), "LEVEL_NIGHTS"),
    ((suspicions,), "DRIFT_DEVIATIONS"),
    ((suspicions,), "UNSURE_NIGHTS"),
    ((suspicions,), "VERSION_ALPHA"),
    ((suspicions,), "EXCLUDED_ALPHA"),
    ((suspicions,), "VERSION_NIGHTS"),
    ((suspicions,), "VERSION_BEFORE"),
    ((suspicions, matching, levels), "SAME_SHIFT_NIGHTS"),
    ((matching,), "_LONGER"),
)
PROBE: Sequence[Constant] = (
    ((machine_check,), "PROBE_BOUND"),
    ((machine_check,), "_ALPHA"),
    ((machine_check,), "_FEWEST_ROUNDS"),
    ((decide,), "_DIFFER_ALPHA"),
)
BRIDGE: Sequence[Constant] = (((bridges,), "_ALPHA"),)
JUDGING: Sequence[Constant] = (
    ((allocations,), "_FAR"),
    ((allocations,), "_MOST_CENTRES"),
    ((allocations,), "_FEWEST_FOR_SPREAD"),
    ((allocations,), "_FEWEST_TO_SPARE_ONE"),
    ((allocations,), "_FEWEST_WITH_PRIOR"),
    ((allocations,), "_OUTLIER_ALPHA"),
    ((moderation,), "FEWEST_CASES"),
    ((moderation,), "MOST_FREEDOM"),
    ((moderation,), "_FAR"),
    ((moderation,), "_ROUNDS"),
)
EARLIER: Sequence[Constant] = (((moderation,), "_UNLIKE"),)
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
"""Suspicions of each kind with a probe of the machine; four times as many new drivers."""
_TRIALS, _DUELS = 4, 200
"""Of `judging` per number of allocations and so on, and of each row of `coverage`."""
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


def vary_chain() -> list[dict[str, Any]]:
    """The constants of the way from a history to an event, over `SITES`; then those of the probe
    and of a bridge. What the detector finds does not depend on them, so it is found once."""
    found = chain.detect_shifts
    chain.detect_shifts = _detect
    try:
        rows = vary(_measure_sites, CONFIRMATION)
    finally:
        chain.detect_shifts = found
    return rows + vary(_measure_probe, PROBE) + vary(_measure_bridges, BRIDGE)


def vary_judging() -> list[dict[str, Any]]:
    """The constants of paired times of several allocations, and of what earlier duels add."""
    return vary(_measure_judging, JUDGING) + vary(_measure_earlier, EARLIER)


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


def _measure_bridges() -> dict[str, float]:
    """How often a driver is bridged that moves nothing, and one that moves 5 %, at 2 % of noise."""
    rng, rates = np.random.default_rng(54), dict[str, float]()
    for moved in (0.0, 0.05):
        logs = rng.normal(0, 0.02, (4 * _REPEATS, 40)) + math.log1p(moved) * (np.arange(40) >= 18)
        applied = [bridges.bridge_conditions(_cross_driver(each))[1][0].applied for each in logs]
        rates[f"bridged, {moved:.0%}"] = float(np.mean(applied))
    return rates


def _cross_driver(logs: np.ndarray) -> list[Night]:
    """Nights of the same two environments; from the nineteenth on with a new driver."""
    return [
        attributions.make_night(
            number, float(log), "a", "b", conditions={"driver": "570.1" if number < 18 else "580.2"}
        )
        for number, log in enumerate(logs)
    ]


def _measure_judging() -> dict[str, float]:
    """False alarms, power and coverage of `deadheat judge` on several allocations of all kinds,
    alone and in folders."""
    trials = list(judges.simulate(55, _TRIALS))
    answers = {
        "alone": [judges.ours(each) for each in trials],
        "folder": judges.judge_folders(trials, 55),
    }
    rates: dict[str, float] = {}
    for name, given in answers.items():
        found = [each for each in zip(trials, given, strict=True) if len(each[0].allocations) > 1]
        for truth in (0.0, 0.02):
            verdicts = [a.verdict for trial, a in found if trial.truth == math.log1p(truth)]
            rates[f"different at {truth:.0%}, {name}"] = verdicts.count("different") / len(verdicts)
        held = [answer.low <= trial.truth <= answer.high for trial, answer in found]
        rates[f"coverage, {name}"] = float(np.mean(held))
    return rates


def _measure_earlier() -> dict[str, float]:
    """Coverage and power of a night's intervals that earlier duels inform, of all kinds of starts;
    and coverage where those duels were quieter."""
    rows = list(coverage.measure(56, _DUELS, {"a night": coverage.LIMITS["a night"]}))
    return {
        name: float(np.mean([row[name] for row in rows if name in row]))
        for name in ("coverage, earlier", "coverage, quieter", "power at 2%, earlier")
    }

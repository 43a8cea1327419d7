"""Simulate a site's nights from the first suspicion to the event, and count what was false.

Every night each series gains a value; `suspect` and `reconcile` open suspicions, and all open ones
are confirmed that night: starts are drawn for each look, and `decide` judges them together. This is
what `deadheat nightly` and `deadheat confirm` do, without the store.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
import unsteady

from benchcore.verdict.confirmation.decide import ALPHA, LOOKS, Finding, Start, decide
from benchcore.verdict.confirmation.event_states import find_shift
from benchcore.verdict.history.detect import Detection, detect_shifts
from benchcore.verdict.history.levels import HistoryLevels, SuspectedNights, measure_levels
from benchcore.verdict.history.matching import (
    State,
    StoredSuspicion,
    list_explained,
    list_growing,
    reconcile,
)
from benchcore.verdict.history.series import Night, Series, SeriesKey
from benchcore.verdict.history.suspicions import Suspicion, suspect

NOISES = (0.003, 0.007, 0.02)
STATES = ("shared", "independent")
RELEASES: Sequence[int] = range(14, 3650, 8)
"""Nights with a new environment for every series: of a and b, in turn."""
SIZES = (0.03, 0.05, 0.10)
BIMODAL, SHARE, APART = 0.15, (0.2, 0.5), (3.0, 6.0)
"""Share of the series with two modes, share of nights in the upper mode, and how far apart the
modes are, in standard deviations of the night's noise."""
OUTLIERS, OFF = 0.01, (0.05, 0.30)
_OWN = 0.5
"""Spread of one contender's time from start to start, as a share of the night's noise. It does not
cancel between the old and the new environment; the state of the night or machine does."""
_WITHIN, _ROUNDS = 0.003, 6
_SHARED_BY_ALL = 0.03
_FIRST_NIGHT = datetime(2026, 1, 1, 3, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """A change that was put in: from this night on `side`, or the machine, moved the ratio."""

    night: int
    culprit: Literal["a", "b", "infrastructure"]
    log_ratio: float


@dataclass(frozen=True, kw_only=True)
class Site:
    """What is simulated. `shifts` releases move a framework, `machine_shifts` nights the machine.

    The state of a night (its noise, mode and outlier) is shared by all starts of a confirmation in
    that night in the first half of each noise's series; in the others each start has its own.
    Series have these `kinds` of noise (`unsteady.py`) in turn.
    """

    series: int = 500
    nights: int = 60
    shifts: int = 18
    machine_shifts: int = 6
    seed: int = 2
    kinds: tuple[str, ...] = (unsteady.STEADY,)
    only_shifted: bool = False
    """Leave out the series that do not change."""


SHORT = Site(series=48, nights=26, shifts=6, machine_shifts=2, seed=5)
"""A small site with shifts of both kinds, which the tests run: `verdicts.py chain --short`."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A suspicion as the store keeps it, as history showed it last, and by how much a framework
    moved the ratio, if that was confirmed."""

    stored: StoredSuspicion
    found: Suspicion
    moved: float | None = None


@dataclass
class SimulatedSeries:
    """One series: its truth, the nights as measured, and what the chain made of them."""

    noise: float
    state: str
    bimodal: bool
    share: float
    apart: float
    truths: list[Truth]
    state_of_night: np.ndarray
    kind: str = unsteady.STEADY
    unsteadiness: unsteady.Unsteadiness | None = None
    nights: tuple[Night, ...] = ()
    shown: Detection | None = None
    known: dict[int, Kept] = field(default_factory=dict[int, "Kept"])


@dataclass(frozen=True, kw_only=True)
class Event:
    """A confirmed suspicion of series `series`: opened in `night`, about a change in `since`."""

    series: int
    night: int
    since: int
    trigger: str
    culprit: str


@dataclass(kw_only=True)
class Outcome:
    """What a simulated site came to. `suspicions` counts confirmations by trigger, `grown` those by
    which an event grew."""

    site: Site
    series: list[SimulatedSeries]
    events: list[Event] = field(default_factory=list)
    suspicions: Counter[str] = field(default_factory=Counter[str])
    verdicts: Counter[str] = field(default_factory=Counter[str])
    grown: int = 0
    starts: int = 0


def simulate(site: Site) -> Outcome:
    """Run the whole chain, night after night; the same site gives the same outcome."""
    rng = np.random.default_rng(site.seed)
    drawn = [one for one in _draw_series(rng, site) if one.truths or not site.only_shifted]
    outcome = Outcome(site=site, series=drawn)
    for night in range(site.nights):
        _run_night(outcome, night)
    return outcome


def _draw_series(rng: np.random.Generator, site: Site) -> Iterator[SimulatedSeries]:
    truths = _draw_truths(rng, site)
    for number in range(site.series):
        one = SimulatedSeries(
            noise=NOISES[number % len(NOISES)],
            state=STATES[number // len(NOISES) % len(STATES)],
            bimodal=bool(rng.random() < BIMODAL),
            share=rng.uniform(*SHARE),
            apart=rng.uniform(*APART),
            truths=truths.get(number, []),
            state_of_night=np.zeros(site.nights),
            kind=site.kinds[number // (len(NOISES) * len(STATES)) % len(site.kinds)],
        )
        if one.kind != unsteady.STEADY:
            one.unsteadiness = unsteady.draw(rng, one.kind, site.nights)
        one.state_of_night = np.array([_draw_state(rng, one, n) for n in range(site.nights)])
        one.nights = tuple(_make_nights(rng, one, number))
        yield one


def _draw_truths(rng: np.random.Generator, site: Site) -> Mapping[int, list[Truth]]:
    """Series that change, one change each: of every noise, state and size in turn, either way."""
    kinds = rng.permutation(len(NOISES) * len(STATES))
    places = rng.permutation(site.series // len(kinds)) * len(kinds)
    chosen = [places[n] + kinds[n % len(kinds)] for n in range(site.shifts + site.machine_shifts)]
    truths: dict[int, list[Truth]] = {}
    for number, series in enumerate(map(int, chosen)):
        log_ratio = float(rng.choice([-1, 1])) * math.log1p(
            SIZES[number // len(kinds) % len(SIZES)]
        )
        release = int(rng.integers(bisect_right(RELEASES, site.nights - 1)))
        night, culprit = RELEASES[release], "ab"[release % 2]
        if number >= site.shifts:
            night, culprit = int(rng.integers(12, site.nights - 6)), "infrastructure"
        truths[series] = [Truth(night=night, culprit=culprit, log_ratio=log_ratio)]  # type: ignore[arg-type]
    return truths


def _draw_state(rng: np.random.Generator, one: SimulatedSeries, night: int) -> float:
    """What moves the ratio of a night, or of a start, whatever the environments are."""
    state = rng.normal(0, one.noise)
    if one.unsteadiness is not None:
        state *= one.unsteadiness.scale[night]
        state += one.noise * one.unsteadiness.common[night]
    if one.bimodal and rng.random() < one.share:
        state += one.apart * one.noise
    if rng.random() < OUTLIERS:
        state += rng.choice([-1, 1]) * rng.uniform(*OFF)
    return float(state)


def _version(side: str, night: int) -> int:
    """How many releases of this side there were until this night."""
    return (bisect_right(RELEASES, night) + (side == "a")) // 2


def _cell_level(one: SimulatedSeries, side: str, night: int) -> float:
    """By how much the truth moves the time of a side in the environment of that night."""
    sign = 1 if side == "b" else -1
    return sum(
        sign * each.log_ratio for each in one.truths if each.culprit == side and each.night <= night
    )


def _machine_level(one: SimulatedSeries, night: int) -> float:
    return sum(
        each.log_ratio
        for each in one.truths
        if each.culprit == "infrastructure" and each.night <= night
    )


def _make_nights(rng: np.random.Generator, one: SimulatedSeries, number: int) -> Iterator[Night]:
    key = SeriesKey(
        workload="simulated",
        case_name=str(number),
        track="default",
        a_arm="jax-jit",
        b_arm="torch-eager",
        device_fingerprint="0" * 16,
    )
    for night, state in enumerate(one.state_of_night):
        own = rng.normal(0, _OWN * one.noise * math.sqrt(2 / 3))  # of both sides, over three starts
        level = _cell_level(one, "b", night) - _cell_level(one, "a", night)
        versions = {side: f"{side}-{_version(side, night)}" for side in "ab"}
        yield Night(
            key=key,
            at=_FIRST_NIGHT + timedelta(days=night),
            duel_run=f"{number:06x}{night:010x}",
            log_ratio=float(level + _machine_level(one, night) + state + own),
            a=versions["a"],
            b=versions["b"],
            a_environment=versions["a"],
            b_environment=versions["b"],
        )


def _draw_start(
    rng: np.random.Generator, one: SimulatedSeries, suspicion: Suspicion, night: int
) -> Start:
    """A fresh start in this night of the environments of before and after the suspected change."""
    old, new = _index(suspicion.before), _index(suspicion.after)
    state = one.state_of_night[night] if one.state == "shared" else _draw_state(rng, one, night)
    shared = rng.normal(0, _SHARED_BY_ALL)
    ratio = {"a": 0.0, "b": float(state) + _machine_level(one, night)}
    start: dict[str, Mapping[int, float]] = {}
    for side in "ab":
        for cell, of_night in ((f"{side}_old", old), (f"{side}_new", new)):
            level = shared + ratio[side] + _cell_level(one, side, of_night)
            start[cell] = _draw_rounds(rng, one, level)
        if _version(side, old) == _version(side, new):
            start[f"{side}_old"] = start[f"{side}_new"]
    start["control"] = _draw_rounds(rng, one, shared + _cell_level(one, "a", old))
    return start


def _draw_rounds(
    rng: np.random.Generator, one: SimulatedSeries, level: float
) -> Mapping[int, float]:
    own = rng.normal(0, _OWN * one.noise)
    return dict(enumerate(np.exp(level + own + rng.normal(0, _WITHIN, _ROUNDS)).tolist()))


def _index(night: Night) -> int:
    return (night.at - _FIRST_NIGHT).days


def _run_night(outcome: Outcome, night: int) -> None:
    """Bring the suspicions up to date, and confirm all that are open, look by look.

    Starts are drawn for each suspicion by itself, so that a rule that changes one of them leaves
    all others as they are.
    """
    open_ones: list[tuple[int, int]] = []
    for number, one in enumerate(outcome.series):
        open_ones += [(number, each) for each in _refresh(one, night)]
    starts: dict[tuple[int, int], list[Start]] = {each: [] for each in open_ones}
    levels = {each: _levels(outcome.series[each[0]], each[1], night) for each in open_ones}
    findings: dict[tuple[int, int], Finding] = {}
    drawn = {each: np.random.default_rng((outcome.site.seed, night, *each)) for each in open_ones}
    for look in LOOKS:
        for each in open_ones:
            if each in findings and findings[each].verdict != "more":
                continue
            one = outcome.series[each[0]]
            while len(starts[each]) < look:
                starts[each].append(_draw_start(drawn[each], one, one.known[each[1]].found, night))
        given = [(starts[each], levels[each]) for each in starts]
        judged = decide(given, final=look == LOOKS[-1], num_looks=len(LOOKS), alpha=ALPHA)
        for each, found in zip(starts, judged, strict=True):
            if each not in findings or findings[each].verdict == "more":
                findings[each] = found
    outcome.starts += sum(map(len, starts.values()))
    for each, found in findings.items():
        _record(outcome, each, found, night)


def _refresh(one: SimulatedSeries, night: int) -> list[int]:
    """Open, keep or let pass the suspicions of a series; the ids of the open ones."""
    nights = one.nights[: night + 1]
    series = Series(key=nights[0].key, nights=nights)
    known, today = [each.stored for each in one.known.values()], nights[-1].number
    one.shown = detect_shifts(series.values, series.numbers)
    found = suspect(series, None, one.shown, list_explained(known), list_growing(known))
    for change in reconcile(found, known, today):
        number = len(one.known) if change.known is None else change.known
        if change.found is None:
            _set_state(one, number, "passed")
            continue
        stored = StoredSuspicion(
            id=number,
            trigger=change.found.trigger,
            number=change.found.since.number,
            ratio=change.found.ratio,
            state="open",
            compared=(change.found.before.number, change.found.after.number),
        )
        one.known[number] = Kept(stored=stored, found=change.found)
    return [number for number, each in one.known.items() if each.stored.state == "open"]


def _set_state(
    one: SimulatedSeries,
    number: int,
    state: State,
    day: int | None = None,
    *,
    may_grow: bool = False,
) -> None:
    kept = one.known[number]
    stored = replace(kept.stored, state=state, answered=day, may_grow=may_grow)
    one.known[number] = replace(kept, stored=stored)


def _levels(one: SimulatedSeries, number: int, night: int) -> HistoryLevels:
    """As `benchcore.store.history.suspicions.read_suspicion` reads them."""
    kept, nights = one.known[number], one.nights[: night + 1]
    names = {name: getattr(kept.found, name).duel_run for name in ("before", "since", "after")}
    suspected = SuspectedNights(trigger=kept.found.trigger, **names)
    moves = [
        (each.stored.number, each.moved)
        for each in one.known.values()
        if each.moved is not None and each.stored.id != number
    ]
    return measure_levels(Series(key=nights[0].key, nights=nights), suspected, one.shown, moves)


def _record(outcome: Outcome, which: tuple[int, int], found: Finding, night: int) -> None:
    one = outcome.series[which[0]]
    suspicion = one.known[which[1]].found
    outcome.suspicions[suspicion.trigger] += 1
    outcome.verdicts[found.verdict] += 1
    assert found.verdict != "more", "the last look decides"
    day, confirmed = one.nights[night].number, found.verdict == "confirmed"
    of_machine = found.culprit == "infrastructure"
    may_grow = confirmed and (of_machine or suspicion.trigger == "drift")
    _set_state(one, which[1], found.verdict, day, may_grow=may_grow)
    shift = find_shift(asdict(found)) if confirmed else {}
    if shift.get("verdict") == "different":
        kept = one.known[which[1]]
        stored = replace(kept.stored, ratio=math.exp(shift["log_ratio"]))
        one.known[which[1]] = replace(kept, stored=stored)
    if confirmed and found.culprit in ("a", "b", "both") and suspicion.trigger != "drift":
        one.known[which[1]] = replace(one.known[which[1]], moved=found.change.log_ratio)
    if suspicion.grows is not None and confirmed and may_grow:
        outcome.grown += 1  # its event is open already
    elif confirmed:
        event = Event(
            series=which[0],
            night=night,
            since=_index(suspicion.since),
            trigger=suspicion.trigger,
            culprit=found.culprit,
        )
        outcome.events.append(event)

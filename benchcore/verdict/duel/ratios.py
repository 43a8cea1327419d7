"""The log ratio of each pair of contenders of a duel, with its interval and verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType
from typing import Literal

from packaging.version import Version

from benchcore.protocol import ContenderIdentity
from benchcore.verdict.samples import EQUIVALENCE_BOUND, Judgement, Verdict
from benchcore.verdict.starts import StartsOfDuel, judge_starts, log_ratios_by_start

Kind = Literal["cross_framework", "cross_version", "cross_setting"]
PairKind = Kind | Literal["replicate"]


@dataclass(frozen=True, kw_only=True)
class ContenderTimes(ContenderIdentity):
    """One contender of a duel: per start, the nanoseconds per step in each round.

    `degraded` gives the reason for each round that is left out of the ratio.
    """

    starts: Mapping[int, Mapping[int, float]]
    degraded: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    compilations: Mapping[int, int | None] = field(default_factory=dict)
    """By start, whose caches it used; None = it compiled nothing. Starts that are not in it share
    one compilation."""

    @property
    def valid_starts(self) -> Mapping[int, Mapping[int, float]]:
        """The starts without their degraded rounds."""
        return {
            start: {
                number: step_ns
                for number, step_ns in rounds.items()
                if number not in self.degraded.get(start, {})
            }
            for start, rounds in self.starts.items()
        }


@dataclass(frozen=True)
class Exclusion:
    """Why pairs are left out: a pair is excluded if it has all `names`; no names = every pair."""

    names: frozenset[str]
    reason: str

    def concerns(self, a: str, b: str) -> bool:
        """Whether it excludes the pair (a, b)."""
        return self.names <= {a, b}


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """log(T_b / T_a) of one pair: above 0 = a is faster. `low` to `high` is its 95 % interval.

    Across frameworks a is the JAX side, across versions the newer one, else the first one. `counts`
    is False if the numbers must not enter a series. A single start gives a log ratio without an
    interval. The interval takes starts as nested in compilations, and `scope` names how many.
    """

    kind: Kind
    a: str
    b: str
    a_arm: str
    b_arm: str
    a_framework: str
    b_framework: str
    a_version: str
    b_version: str
    a_role: str
    b_role: str
    log_ratio: float | None
    low: float | None
    high: float | None
    num_starts: int
    start_log_ratios: tuple[float, ...]
    start_compilations: tuple[int | None, ...]
    """The compilation of each start; None = neither side compiled anything."""
    verdict: Verdict
    reason: str
    scope: str
    counts: bool


def judge_duel(
    sides: Sequence[ContenderTimes],
    exclusions: Iterable[Exclusion] = (),
    equivalence_bound: float = EQUIVALENCE_BOUND,
    earlier: Mapping[tuple[str, str], Sequence[StartsOfDuel]] = MappingProxyType({}),
) -> list[Ratio]:
    """A ratio for every meaningful pair of a duel, across frameworks or versions.

    A duel of two contenders also has a ratio across settings, or of a contender against itself
    (A/A). In a larger duel such pairs would hide the others. `earlier` are, by the names of a pair,
    the duels of its two environments on that device before this one.
    """
    exclusions = tuple(exclusions)
    ratios = []
    for one, other in combinations(sides, 2):
        kind = classify_pair(one, other, alone=len(sides) == 2)
        if kind is not None and kind != "replicate":
            a, b = (one, other) if _is_first(one, other, kind) else (other, one)
            reasons = [each.reason for each in exclusions if each.concerns(a.name, b.name)]
            known = earlier.get((a.name, b.name), ())
            ratios.append(_judge_pair(kind, a, b, reasons, equivalence_bound, known))
    return ratios


def classify_pair(
    one: ContenderIdentity, other: ContenderIdentity, *, alone: bool
) -> PairKind | None:
    """The kind of a pair of a duel; None if nothing compares the two. `alone`: the duel has no
    other contenders.

    Every kind has a ratio, except `replicate`: the same contender twice, with others. A replicate
    is checked, because calibration runs and confirmations rely on it, but its ratio would hide the
    others.
    """
    frameworks = {one.framework, other.framework}
    if frameworks == {"jax", "torch"}:
        return "cross_framework"
    if len(frameworks) > 1 or frameworks == {"stdlib"}:
        return None
    if one.arm == other.arm and Version(one.version) != Version(other.version):
        return "cross_version"
    if alone:
        return "cross_setting"
    return "replicate" if one.arm == other.arm else None


def _is_first(one: ContenderTimes, other: ContenderTimes, kind: Kind) -> bool:
    if kind == "cross_framework":
        return one.framework == "jax"
    return kind == "cross_setting" or Version(one.version) > Version(other.version)


def _judge_pair(
    kind: Kind,
    a: ContenderTimes,
    b: ContenderTimes,
    reasons: Sequence[str],
    equivalence_bound: float,
    earlier: Sequence[StartsOfDuel],
) -> Ratio:
    log_ratios = log_ratios_by_start(a.valid_starts, b.valid_starts)
    logs, compilations = tuple(log_ratios.values()), _compilations(log_ratios, a, b)
    finding = judge_starts(logs, equivalence_bound, compilations=compilations, earlier=earlier)
    left_out = _describe_degraded(a, b)
    if left_out and not logs:
        finding = Judgement(reason="no valid block")
    return Ratio(
        kind=kind,
        a=a.name,
        b=b.name,
        a_arm=a.arm,
        b_arm=b.arm,
        a_framework=a.framework,
        b_framework=b.framework,
        a_version=a.version,
        b_version=b.version,
        a_role=a.role,
        b_role=b.role,
        log_ratio=finding.log_ratio,
        low=finding.low,
        high=finding.high,
        num_starts=len(logs),
        start_log_ratios=logs,
        start_compilations=compilations,
        verdict="unknown" if reasons else finding.verdict,
        reason="; ".join([*(dict.fromkeys(reasons) or [finding.reason]), *left_out]),
        scope=describe_scope(compilations),
        counts=bool(logs) and not reasons,
    )


def _compilations(
    starts: Iterable[int], a: ContenderTimes, b: ContenderTimes
) -> tuple[int | None, ...]:
    """The pair's compilation in each start: both sides compile in the same starts."""
    sides = [(a.compilations.get(start, 0), b.compilations.get(start, 0)) for start in starts]
    return tuple(of_b if of_a is None else of_a for of_a, of_b in sides)


def describe_scope(compilations: Sequence[int | None]) -> str:
    """What an interval over starts with these compilations holds for."""
    if len(compilations) < 2:
        return "this start"
    count = len({each for each in compilations if each is not None})
    if count == 0:
        return "this node"
    return "this node, " + (
        "within one compilation" if count == 1 else f"over {count} compilations"
    )


def _describe_degraded(a: ContenderTimes, b: ContenderTimes) -> list[str]:
    """How many blocks of the pair are left out, and the first reason; empty = none."""
    why = [
        reason
        for side in (a, b)
        for start in side.degraded
        for number, reason in side.degraded[start].items()
        if number in side.starts.get(start, {})
    ]
    num_blocks = sum(len(rounds) for side in (a, b) for rounds in side.starts.values())
    first = f"{len(why)} of {num_blocks} blocks left out as degraded, the first because "
    return [first + why[0]] if why else []


SINGLE_OPERATIONS = ("convolution",)
"""Workloads with a single operation of a model."""
SLOW_SIDE = 2.0
"""A side is slow if it takes this many times as long, at the nearer end of the interval.
Known ones: depthwise convolutions 3 times (pytorch#157334), weight gradients 30
(openxla/xla#34273)."""


def find_slow_side(
    workload: str, low: float | None, high: float | None
) -> Literal["a", "b"] | None:
    """The side of a pair that takes more than SLOW_SIDE times the other's time over the whole 95 %
    interval, from `low` to `high` of log(b / a)."""
    if workload not in SINGLE_OPERATIONS or low is None or high is None:
        return None
    if low > math.log(SLOW_SIDE):
        return "b"
    return "a" if high < -math.log(SLOW_SIDE) else None

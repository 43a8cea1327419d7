"""What a duel says about each pair of contenders: a log ratio, its interval and a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np
from packaging.version import Version

from benchcore.verdict.samples import EQUIVALENCE_BOUND, Judgement, Verdict, judge_samples

Kind = Literal["cross_framework", "cross_version", "cross_setting"]
Scope = Literal["this start", "this node", "this device model"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One contender of a duel: per start, the nanoseconds a step took in each round.

    `degraded` says of some of these rounds why they take no part in the ratio.
    """

    name: str
    arm: str
    framework: str
    version: str
    role: str
    starts: Mapping[int, Mapping[int, float]]
    degraded: Mapping[int, Mapping[int, str]] = field(default_factory=dict)

    @property
    def valid_starts(self) -> Mapping[int, Mapping[int, float]]:
        """The starts less their degraded rounds."""
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
    """Why pairs take no part: a pair is excluded if it holds all `names`; no names, every pair."""

    names: frozenset[str]
    reason: str

    def concerns(self, a: str, b: str) -> bool:
        """Whether the pair (a, b) is excluded by this."""
        return self.names <= {a, b}


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """log(T_b / T_a) of one pair: above 0 = a is faster. `low` to `high` is its 95 % interval.

    Across frameworks a is the JAX side, across versions the newer one, else the one named first.
    `counts` is False where the numbers must not enter a series. A single start gives a log ratio
    and no interval.
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
    verdict: Verdict
    reason: str
    scope: Scope
    counts: bool


def judge_duel(
    sides: Sequence[Side],
    exclusions: Iterable[Exclusion] = (),
    equivalence_bound: float = EQUIVALENCE_BOUND,
) -> list[Ratio]:
    """A ratio for every pair of a duel that has a meaning, across frameworks or versions.

    A duel of two contenders asks about these two, so it has a ratio also across settings, or of a
    contender against itself (A/A); in a larger one such pairs would hide the others.
    """
    exclusions = tuple(exclusions)
    ratios = []
    for one, other in combinations(sides, 2):
        pair = _order_pair(one, other, alone=len(sides) == 2)
        if pair is not None:
            kind, a, b = pair
            reasons = [each.reason for each in exclusions if each.concerns(a.name, b.name)]
            ratios.append(_judge_pair(kind, a, b, reasons, equivalence_bound))
    return ratios


def _order_pair(one: Side, other: Side, *, alone: bool) -> tuple[Kind, Side, Side] | None:
    if {one.framework, other.framework} == {"jax", "torch"}:
        a, b = (one, other) if one.framework == "jax" else (other, one)
        return "cross_framework", a, b
    if one.framework == "stdlib" or one.framework != other.framework:
        return None
    if one.arm != other.arm or Version(one.version) == Version(other.version):
        return ("cross_setting", one, other) if alone else None
    newer_first = Version(one.version) > Version(other.version)
    a, b = (one, other) if newer_first else (other, one)
    return "cross_version", a, b


def _judge_pair(
    kind: Kind, a: Side, b: Side, reasons: Sequence[str], equivalence_bound: float
) -> Ratio:
    start_log_ratios = log_ratios_by_start(a.valid_starts, b.valid_starts)
    finding = judge_starts(np.array(start_log_ratios), equivalence_bound)
    left_out = _describe_degraded(a, b)
    if left_out and not start_log_ratios:
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
        num_starts=len(start_log_ratios),
        start_log_ratios=start_log_ratios,
        verdict="unknown" if reasons else finding.verdict,
        reason="; ".join([*(dict.fromkeys(reasons) or [finding.reason]), *left_out]),
        scope="this node" if len(start_log_ratios) > 1 else "this start",
        counts=bool(start_log_ratios) and not reasons,
    )


def _describe_degraded(a: Side, b: Side) -> list[str]:
    """How many blocks of the pair are left out, and why the first of them; empty = none."""
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


def log_ratios_by_start(
    a: Mapping[int, Mapping[int, float]], b: Mapping[int, Mapping[int, float]]
) -> tuple[float, ...]:
    """One log ratio a start that both sides share, from the rounds that both ran in it."""
    log_ratios = []
    for start in sorted(a.keys() & b.keys()):
        rounds = sorted(a[start].keys() & b[start].keys())
        if rounds:
            paired = [math.log(b[start][each] / a[start][each]) for each in rounds]
            log_ratios.append(_hodges_lehmann(np.array(paired)))
    return tuple(log_ratios)


def _hodges_lehmann(samples: np.ndarray) -> float:
    """The median of all pairwise means: bears an outlier round, wastes less than the median."""
    first, second = np.triu_indices(len(samples))
    return float(np.median((samples[first] + samples[second]) / 2))


def judge_starts(samples: np.ndarray, equivalence_bound: float = EQUIVALENCE_BOUND) -> Judgement:
    """The verdict over starts: Student's t over the starts' log ratios, never over rounds.

    `same` is asked first: a difference within the bound may be significant, and is too small to
    matter.
    """
    if len(samples) == 0:
        return Judgement(reason="no round that both contenders finished")
    if len(samples) == 1:
        reason = "one start is a suspicion only: it has no interval"
        return Judgement(log_ratio=float(samples[0]), reason=reason)
    return judge_samples(samples, equivalence_bound, asked_first="same")


def judge_nodes(
    log_ratios: Sequence[float], equivalence_bound: float = EQUIVALENCE_BOUND
) -> Judgement:
    """The verdict for a device model, from one log ratio a node.

    The starts of a node share its board, its cooling and its neighbours, so that they tell nothing
    of other nodes: here the nodes are the samples, however many starts each of them had. Raises
    ValueError for fewer than two.
    """
    if len(log_ratios) < 2:
        raise ValueError(f"wanted the log ratios of two nodes at least, got {len(log_ratios)}")
    return judge_starts(np.array(log_ratios), equivalence_bound)

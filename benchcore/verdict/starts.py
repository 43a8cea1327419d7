"""Judge ratios with starts or nodes as samples, and certify releases that changed nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np

from benchcore.cell.stopping import average_compilations
from benchcore.verdict.moderation import learn_spread
from benchcore.verdict.samples import EQUIVALENCE_BOUND, Judgement, judge_samples

Certificate = Literal["better", "worse", "unchanged", "not shown"]
"""What a release did to one metric of a case."""
StartsOfDuel = tuple[Sequence[float], Sequence[int | None]]
"""The log ratios of a duel's starts, and the compilation of each; None = it compiled nothing."""
FEWEST_STARTS = 3


def log_ratios_by_start(
    a: Mapping[int, Mapping[int, float]], b: Mapping[int, Mapping[int, float]]
) -> dict[int, float]:
    """One log ratio per start of both sides, from the rounds that both ran."""
    log_ratios = {}
    for start in sorted(a.keys() & b.keys()):
        rounds = sorted(a[start].keys() & b[start].keys())
        if rounds:
            paired = [math.log(b[start][each] / a[start][each]) for each in rounds]
            log_ratios[start] = _hodges_lehmann(np.array(paired))
    return log_ratios


def _hodges_lehmann(samples: np.ndarray) -> float:
    """The median of all pairwise means: robust to an outlier round, more efficient than the
    median."""
    first, second = _list_pairs(len(samples))
    return float(np.median((samples[first] + samples[second]) / 2))


@cache
def _list_pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(count)


def judge_starts(
    log_ratios: Sequence[float],
    equivalence_bound: float = EQUIVALENCE_BOUND,
    *,
    compilations: Sequence[int | None] = (),
    earlier: Sequence[StartsOfDuel] = (),
) -> Judgement:
    """The verdict over starts: Student's t over the starts' log ratios, never over rounds.

    `compilations` are those of the starts; none given = they share one. Of the intervals over the
    starts and over the compilations' means the wider one counts, as when a duel stops
    (`benchcore.cell.stopping.nested_half_width`).

    `earlier` are duels of the same two environments on the same device: how far their starts and
    compilations spread moderates the variance (`benchcore.verdict.moderation`). Other cases don't
    serve: their spread differs, so the intervals of the noisier ones would be too narrow.

    `same` wins: a difference within the bound may be significant, but is too small to matter.
    """
    if len(log_ratios) == 0:
        return Judgement(reason="no round that both contenders finished")
    if len(log_ratios) == 1:
        reason = "one start only raises a suspicion: it has no interval"
        return Judgement(log_ratio=float(log_ratios[0]), reason=reason)
    of_starts = compilations or [0] * len(log_ratios)
    comparable = [each for each in earlier if len({*each[1]}) == len({*of_starts})]
    means = average_compilations(log_ratios, of_starts)
    means_of_earlier = [average_compilations(*each) for each in comparable]
    over_means = _judge_moderated(means, equivalence_bound, means_of_earlier)
    starts_of_earlier = [list(logs) for logs, _ in comparable]
    if (means, means_of_earlier) == (list(log_ratios), starts_of_earlier):
        return over_means  # each start compiled, so both are over the same samples
    over_starts = _judge_moderated(log_ratios, equivalence_bound, starts_of_earlier)
    return max(over_means, over_starts, key=_width)


def _judge_moderated(
    samples: Sequence[float], bound: float, earlier: Sequence[Sequence[float]]
) -> Judgement:
    prior = learn_spread(samples, earlier)
    found = judge_samples(np.array(samples, float), bound, prefer="same", prior=prior)
    if prior is None:
        return found
    return replace(found, reason=f"{found.reason}, with the spread of {len(earlier)} earlier duels")


def _width(found: Judgement) -> float:
    assert found.low is not None and found.high is not None
    return found.high - found.low


def judge_nodes(log_ratios: Sequence[float]) -> Judgement:
    """The verdict for a device model, from one log ratio per node.

    The starts of a node share its board, cooling and neighbours, so they show nothing about other
    nodes. Here the nodes are the samples, whatever the number of their starts. Raises ValueError
    for fewer than two.
    """
    if len(log_ratios) < 2:
        raise ValueError(f"wanted the log ratios of at least two nodes, got {len(log_ratios)}")
    return judge_starts(log_ratios)


def certify(
    samples: Sequence[float], bound: float = EQUIVALENCE_BOUND, noise_floor: float = 0.0
) -> tuple[Certificate, Judgement]:
    """Judge independent log ratios, above 0 = the newer version is better: two one-sided tests at
    5 % show `unchanged`. They are log(T_old / T_new), one per start or compilation
    (`average_compilations`), or another metric's, one per duel run.

    Few can agree by chance, so their spread counts as at least half the bound, and never as less
    than `noise_floor`.
    """
    if len(samples) < FEWEST_STARTS:
        reason = f"measured {len(samples)} times independently, at least {FEWEST_STARTS} are needed"
        mean = float(np.mean(samples)) if len(samples) else None
        return "not shown", Judgement(log_ratio=mean, reason=reason)
    found = judge_samples(
        np.array(samples, float),
        bound,
        prefer="same",
        least_spread=math.log1p(bound) / 2,
        noise_floor=noise_floor,
    )
    if found.verdict == "same":
        return "unchanged", found
    if found.verdict == "unknown" or found.log_ratio is None:
        return "not shown", found
    return ("better" if found.log_ratio > 0 else "worse"), found

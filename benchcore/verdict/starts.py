"""Judge ratios with starts or nodes as samples, and certify releases that changed nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from benchcore.verdict.samples import EQUIVALENCE_BOUND, Judgement, judge_samples

Certificate = Literal["unchanged", "changed", "not shown"]
FEWEST_STARTS = 3


def log_ratios_by_start(
    a: Mapping[int, Mapping[int, float]], b: Mapping[int, Mapping[int, float]]
) -> tuple[float, ...]:
    """One log ratio per start of both sides, from the rounds that both ran."""
    log_ratios = []
    for start in sorted(a.keys() & b.keys()):
        rounds = sorted(a[start].keys() & b[start].keys())
        if rounds:
            paired = [math.log(b[start][each] / a[start][each]) for each in rounds]
            log_ratios.append(_hodges_lehmann(np.array(paired)))
    return tuple(log_ratios)


def _hodges_lehmann(samples: np.ndarray) -> float:
    """The median of all pairwise means: robust to an outlier round, more efficient than the
    median."""
    first, second = np.triu_indices(len(samples))
    return float(np.median((samples[first] + samples[second]) / 2))


def judge_starts(samples: np.ndarray, equivalence_bound: float = EQUIVALENCE_BOUND) -> Judgement:
    """The verdict over starts: Student's t over the starts' log ratios, never over rounds.

    `same` wins: a difference within the bound may be significant, but is too small to matter.
    """
    if len(samples) == 0:
        return Judgement(reason="no round that both contenders finished")
    if len(samples) == 1:
        reason = "one start only raises a suspicion: it has no interval"
        return Judgement(log_ratio=float(samples[0]), reason=reason)
    return judge_samples(samples, equivalence_bound, prefer="same")


def judge_nodes(
    log_ratios: Sequence[float], equivalence_bound: float = EQUIVALENCE_BOUND
) -> Judgement:
    """The verdict for a device model, from one log ratio per node.

    The starts of a node share its board, cooling and neighbours, so they show nothing about other
    nodes. Here the nodes are the samples, whatever the number of their starts. Raises ValueError
    for fewer than two.
    """
    if len(log_ratios) < 2:
        raise ValueError(f"wanted the log ratios of at least two nodes, got {len(log_ratios)}")
    return judge_starts(np.array(log_ratios), equivalence_bound)


def certify(
    start_log_ratios: Sequence[float], bound: float = EQUIVALENCE_BOUND
) -> tuple[Certificate, Judgement]:
    """Judge log(T_old / T_new), one per start: two one-sided tests at 5 % show `unchanged`.

    Few starts can agree by chance, so their spread counts as at least half the bound.
    """
    samples = np.array(start_log_ratios, float)
    if len(samples) < FEWEST_STARTS:
        reason = f"{len(samples)} starts, at least {FEWEST_STARTS} are needed"
        return "not shown", Judgement(reason=reason)
    found = judge_samples(samples, bound, prefer="same", least_spread=math.log1p(bound) / 2)
    certificates: dict[str, Certificate] = {"same": "unchanged", "different": "changed"}
    return certificates.get(found.verdict, "not shown"), found

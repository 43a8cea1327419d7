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
    """One log ratio per start that both sides share, from the rounds that both ran in it."""
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

    `same` wins: a difference within the bound may be significant, and is too small to
    matter.
    """
    if len(samples) == 0:
        return Judgement(reason="no round that both contenders finished")
    if len(samples) == 1:
        reason = "one start is a suspicion only: it has no interval"
        return Judgement(log_ratio=float(samples[0]), reason=reason)
    return judge_samples(samples, equivalence_bound, prefer="same")


def judge_nodes(
    log_ratios: Sequence[float], equivalence_bound: float = EQUIVALENCE_BOUND
) -> Judgement:
    """The verdict for a device model, from one log ratio a node.

    The starts of a node share its board, its cooling and its neighbours, so that they show nothing
    about other nodes: here the nodes are the samples, however many starts each of them had. Raises
    ValueError for fewer than two.
    """
    if len(log_ratios) < 2:
        raise ValueError(f"wanted the log ratios of two nodes at least, got {len(log_ratios)}")
    return judge_starts(np.array(log_ratios), equivalence_bound)


def certify(
    start_log_ratios: Sequence[float], bound: float = EQUIVALENCE_BOUND
) -> tuple[Certificate, Judgement]:
    """Of log(T_old / T_new), one a start: `unchanged` is shown by two one-sided tests at 5 %.

    Few starts can agree by chance, so they are taken to spread by half the bound at the least.
    """
    samples = np.array(start_log_ratios, float)
    if len(samples) < FEWEST_STARTS:
        reason = f"{len(samples)} starts of the {FEWEST_STARTS} it takes"
        return "not shown", Judgement(reason=reason)
    found = judge_samples(samples, bound, prefer="same", least_spread=math.log1p(bound) / 2)
    said: dict[str, Certificate] = {"same": "unchanged", "different": "changed"}
    return said.get(found.verdict, "not shown"), found

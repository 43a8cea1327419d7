"""Simulated paired times of several allocations, and others' ways to judge them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import stats

from benchcore.verdict.allocations import judge_allocations, locate
from benchcore.verdict.moderation import fit_spread
from benchcore.verdict.samples import Judgement

_OF_A_FOLDER = 20
KINDS = ("clean", "outlier pairs", "one bad node")
TRUTHS = (0.0, 0.01, 0.02, 0.03, 0.05)
_SHARED = 0.03
_WITHIN = 0.003
"""Noise of one time; a pair's log ratio has the square root of two times it."""


@dataclass(frozen=True, kw_only=True)
class PairedTimes:
    """Allocations of [seconds_a, seconds_b], where b takes exp(truth) as long."""

    kind: str
    truth: float
    effect: float
    allocations: list[np.ndarray]

    @property
    def log_ratios(self) -> list[np.ndarray]:
        """One array per allocation."""
        return [np.log(pairs[:, 1] / pairs[:, 0]) for pairs in self.allocations]


def simulate(seed: int, repeats: int) -> Iterator[PairedTimes]:
    """1, 3, 5 and 8 allocations of 4, 10 and 30 pairs, the difference between versions varying from
    allocation to allocation by 0, 0.5 and 1 %; `repeats` of each with each truth and kind."""
    rng = np.random.default_rng(seed)
    sizes = product((1, 3, 5, 8), (4, 10, 30), (0.0, 0.005, 0.01), range(repeats))
    for kind, truth, (num, pairs, effect, _) in product(KINDS, TRUTHS, list(sizes)):
        logs = rng.normal(0, _WITHIN, (num, pairs, 2)) + rng.normal(0, _SHARED, (num, 1, 1))
        logs[:, :, 1] += math.log1p(truth) + rng.normal(0, effect, (num, 1))
        if kind == "outlier pairs":
            odd = rng.random(logs.shape) < 0.04
            logs += odd * rng.uniform(0.05, 0.5, logs.shape)
        if kind == "one bad node":
            logs[rng.integers(num), :, 1] += rng.choice([-1, 1]) * rng.uniform(0.05, 0.3)
        yield PairedTimes(
            kind=kind, truth=math.log1p(truth), effect=effect, allocations=list(0.1 * np.exp(logs))
        )


@dataclass(frozen=True)
class Answer:
    """A verdict, and the interval of the log ratio where there is one."""

    verdict: str
    low: float = math.nan
    high: float = math.nan


def ours(trial: PairedTimes) -> Answer:
    """The verdict of `deadheat judge`."""
    return _answer(judge_allocations(trial.log_ratios))


def _answer(found: Judgement) -> Answer:
    if found.low is None or found.high is None:
        return Answer(found.verdict)
    return Answer(found.verdict, found.low, found.high)


def judge_folders(trials: Sequence[PairedTimes], seed: int, *, mixed: bool = False) -> list[Answer]:
    """The verdicts of `deadheat judge` on folders of 20 cases of a machine. Trials differ in
    truth and number of pairs, and share the kind, the number of allocations and, unless `mixed`,
    how these vary."""
    rng = np.random.default_rng(seed)
    answers = [Answer("unknown")] * len(trials)
    machines: dict[tuple[str, float | None, int], list[int]] = {}
    for number, trial in enumerate(trials):
        machine = (trial.kind, None if mixed else trial.effect, len(trial.allocations))
        machines.setdefault(machine, []).append(number)
    for members in machines.values():
        shuffled = rng.permutation(members).tolist()
        for first in range(0, len(shuffled), _OF_A_FOLDER):
            folder = shuffled[first : first + _OF_A_FOLDER]
            prior = fit_spread([locate(trials[each].log_ratios) for each in folder])
            for each in folder:
                answers[each] = _answer(judge_allocations(trials[each].log_ratios, prior=prior))
    return answers


def t_on_means(trial: PairedTimes) -> Answer:
    """Student's t over the allocations' means, at 5 %."""
    return _t_test(np.array([pairs.mean() for pairs in trial.log_ratios]))


def t_on_medians(trial: PairedTimes) -> Answer:
    """Student's t over the allocations' medians, at 5 %."""
    return _t_test(np.array([np.median(pairs) for pairs in trial.log_ratios]))


def _t_test(samples: np.ndarray) -> Answer:
    if len(samples) < 2:
        return Answer("unknown")
    half = stats.t.ppf(0.975, len(samples) - 1) * samples.std(ddof=1) / math.sqrt(len(samples))
    mean = samples.mean()
    return Answer("different" if abs(mean) > half else "unknown", mean - half, mean + half)


def wilcoxon(trial: PairedTimes) -> Answer:
    """Wilcoxon's signed ranks over all pairs as if they were independent, at 5 %."""
    pairs = np.concatenate(trial.log_ratios)
    return Answer("different" if stats.wilcoxon(pairs).pvalue < 0.05 else "unknown")


def pinpoint(trial: PairedTimes) -> Answer:
    """Pinpoint's bisect: the smaller p of Kolmogorov-Smirnov and Mann-Whitney, at 1 %."""
    times = np.concatenate(trial.allocations)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_both = stats.ks_2samp(times[:, 0], times[:, 1]).pvalue
        ranks = stats.mannwhitneyu(times[:, 0], times[:, 1]).pvalue
    return Answer("different" if min(of_both, ranks) <= 0.01 else "unknown")


def torchbench(trial: PairedTimes) -> Answer:
    """TorchBench: 7 % between the medians."""
    a, b = np.median(np.concatenate(trial.allocations), axis=0)
    return Answer("different" if abs(b / a - 1) > 0.07 else "same")


JUDGES: Mapping[str, Callable[[PairedTimes], Answer]] = {
    "ours": ours,
    "t on means": t_on_means,
    "t on medians": t_on_medians,
    "Wilcoxon on pairs": wilcoxon,
    "Pinpoint": pinpoint,
    "TorchBench": torchbench,
}

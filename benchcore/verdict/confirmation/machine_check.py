"""Check with a probe without frameworks whether the machine was equally fast in all starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchcore.verdict.samples import Judgement

PROBES = ("gemm", "copy")
"""Cells of a start beside those of its contenders: nanoseconds of a matrix product, and of a copy
in memory, in each round."""
PROBE_BOUND = 0.1
"""Contenders of a start share its machine, so that what is slower for all of them cancels in their
ratio. A machine that is slower by more than this is another one."""
_ALPHA = 0.05
_FEWEST_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class MachineCheck:
    """The slowest start's probe over the fastest's as a log ratio, of each probe that there is, and
    which starts are slower than the fastest by more than the bound, for sure: indices.

    Intervals hold with 95 % for all starts and probes together; rounds are their samples, as they
    tell of one start, not of what starts have in common. `different` = beyond the bound.
    """

    num_starts: int
    gemm: Judgement | None
    copy: Judgement | None
    slow: tuple[int, ...]


def check_machine(
    starts: Sequence[Mapping[str, Mapping[int, float]]], bound: float = PROBE_BOUND
) -> MachineCheck | None:
    """What the probes of these starts say; None where fewer than two starts have one."""
    num_looks = max(1, len(PROBES) * (len(starts) - 1))
    found = {name: _compare(starts, name, bound, _ALPHA / num_looks) for name in PROBES}
    compared = [each for each in found.values() if each]
    if not compared:
        return None
    return MachineCheck(
        num_starts=max(len(each) + 1 for each in compared),
        **{name: _slowest(of_probe) for name, of_probe in found.items()},
        slow=tuple(
            sorted(
                {
                    start
                    for of_probe in compared
                    for start, each in of_probe.items()
                    if each.verdict == "different"
                }
            )
        ),
    )


def _slowest(of_probe: Mapping[int, Judgement]) -> Judgement | None:
    return max(of_probe.values(), key=lambda each: each.log_ratio or 0.0, default=None)


def _compare(
    starts: Sequence[Mapping[str, Mapping[int, float]]], probe: str, bound: float, alpha: float
) -> dict[int, Judgement]:
    """Each start against the fastest, by Welch's interval over rounds."""
    logs = {
        index: np.log(list(rounds.values()))
        for index, start in enumerate(starts)
        if len(rounds := start.get(probe, {})) >= _FEWEST_ROUNDS
    }
    if len(logs) < 2:
        return {}
    fastest = min(logs, key=lambda index: float(logs[index].mean()))
    return {
        index: _judge(times, logs[fastest], bound, alpha)
        for index, times in logs.items()
        if index != fastest
    }


def _judge(times: np.ndarray, fastest: np.ndarray, bound: float, alpha: float) -> Judgement:
    from scipy import stats

    middle = float(times.mean() - fastest.mean())
    half = 0.0
    if times.std() > 0 or fastest.std() > 0:
        interval = stats.ttest_ind(times, fastest, equal_var=False).confidence_interval(1 - alpha)
        half = float(interval.high - interval.low) / 2
    most = math.log1p(bound)
    if middle - half > most:
        verdict, reason = "different", f"slower by more than {bound:.0%} for sure"
    elif middle + half < most:
        verdict, reason = "same", f"within {bound:.0%} for sure"
    else:
        verdict, reason = "unknown", f"whether it is slower by more than {bound:.0%} is open"
    return Judgement(
        verdict=verdict, log_ratio=middle, low=middle - half, high=middle + half, reason=reason
    )


def describe_machine(machine: MachineCheck) -> str:
    """'the machine itself, without a framework, took up to 1.31 times as long for a copy (1.27 to
    1.35) in 2 of 5 starts'."""
    named = {"gemm": "a matrix product", "copy": "a copy"}
    found = {name: getattr(machine, name) for name in PROBES}
    told = [
        f"{each.ratios['ratio']:.3g} times as long for {named[name]} "
        f"({each.ratios['low']:.3g} to {each.ratios['high']:.3g})"
        for name, each in found.items()
        if each is not None and (each.verdict == "different" or not machine.slow)
    ]
    most = "up to " if machine.slow else ""
    where = f"in {len(machine.slow)} of" if machine.slow else "in the slowest of"
    return (
        f"the machine itself, without a framework, took {most}{' and '.join(told)} {where} "
        f"{machine.num_starts} starts"
    )

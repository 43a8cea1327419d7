"""Check the machine: whether it was equally fast in all starts, by a probe without frameworks, and
whether it changed a ratio, by the nights before the change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchcore.names import format_percent
from benchcore.verdict.history.levels import HistoryLevels
from benchcore.verdict.history.thresholds import LASTING_NIGHTS
from benchcore.verdict.samples import ALPHA, Judgement, Verdict, t_quantile, t_tail

PROBES = ("gemm", "copy")
"""Cells of a start besides its contenders: nanoseconds of a matrix product and of a copy in memory,
per round."""
KNOWN_LEVEL = "at a level where it already was"
"""Begins the reason of a return."""
PROBE_BOUND = 0.1
"""Contenders of a start share its machine, so a common slow-down cancels in their ratio. Beyond
this bound the machine counts as changed."""
_ALPHA = 0.05
_FEWEST_ROUNDS = 3
_FAR = 3.0
_LONGER = 2.0
"""How many times as long as any earlier spell near it a new level must last. Where two machines
alternate, the longest stay so far is often exceeded a little."""


@dataclass(frozen=True, kw_only=True)
class MachineCheck:
    """For each probe the log ratio of the slowest start to the fastest; and `slow`, the starts that
    are significantly slower than the fastest by more than the bound, by index.

    Intervals hold with 95 % for all starts and probes together. Rounds are their samples, because
    they compare two given starts. `different` = beyond the bound.
    """

    num_starts: int
    gemm: Judgement | None
    copy: Judgement | None
    slow: tuple[int, ...]


def check_machine(starts: Sequence[Mapping[str, Mapping[int, float]]]) -> MachineCheck | None:
    """Compare the probes of these starts; None if fewer than two starts have one."""
    num_looks = max(1, len(PROBES) * (len(starts) - 1))
    found = {name: _compare(starts, name, _ALPHA / num_looks) for name in PROBES}
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
    starts: Sequence[Mapping[str, Mapping[int, float]]], probe: str, alpha: float
) -> dict[int, Judgement]:
    """Each start against the fastest, with Welch's interval over rounds."""
    logs = {
        index: np.log(list(rounds.values()))
        for index, start in enumerate(starts)
        if len(rounds := start.get(probe, {})) >= _FEWEST_ROUNDS
    }
    if len(logs) < 2:
        return {}
    fastest = min(logs, key=lambda index: float(logs[index].mean()))
    return {
        index: _judge(times, logs[fastest], PROBE_BOUND, alpha)
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
        verdict, reason = "different", f"the interval lies above {format_percent(bound)}"
    elif middle + half < most:
        verdict, reason = "same", f"the interval lies below {format_percent(bound)}"
    else:
        verdict, reason = "unknown", f"the interval includes {format_percent(bound)}"
    return Judgement(
        verdict=verdict, log_ratio=middle, low=middle - half, high=middle + half, reason=reason
    )


def describe_machine(machine: MachineCheck) -> str:
    """'the machine itself, without a framework, took up to 1.31 times as long for a copy (1.27 to
    1.35) in 2 of 5 starts'."""
    named = {"gemm": "a matrix product", "copy": "a copy"}
    found = {name: getattr(machine, name) for name in PROBES}
    changes = [
        f"{each.ratios['ratio']:.3g} times as long for {named[name]} "
        f"({each.ratios['low']:.3g} to {each.ratios['high']:.3g})"
        for name, each in found.items()
        if each is not None and (each.verdict == "different" or not machine.slow)
    ]
    most = "up to " if machine.slow else ""
    where = f"in {len(machine.slow)} of" if machine.slow else "in the slowest of"
    return (
        f"the machine itself, without a framework, took {most}{' and '.join(changes)} {where} "
        f"{machine.num_starts} starts"
    )


def judge_machine_level(
    levels: Sequence[float], history: HistoryLevels, change: Judgement | None = None
) -> Judgement | None:
    """Test whether these starts' level is off the nights before by more than the scale's smallest.

    `levels` is log(T_b / T_a) of each start of one night, with today's environments. The starts of
    a night can share its state, so they count as that night, the last one since the change. The
    error is that of the nights' spread, before and since, and of the starts; a night since counts
    as no further from their median than `_FAR` spreads. `p` is of no change, by Student's t with
    the freedom of the nights before, times the nights at which the change could have been seen:
    they were searched for it (Bonferroni).

    `change` is what the environments themselves changed in these starts. If that is significant,
    the machine moved only the rest, however small the change is. The rest is `different` if three
    conditions hold: its interval clears the smallest change; it is beyond the bound within which
    starts are the same, also without that change; and it has lasted twice as long as any earlier
    spell near its level. A level at which the series certainly was before is `same`: it returned,
    and nothing is new.

    None if it can't be tested: the spread is unknown, the new level has lasted for less than
    `LASTING_NIGHTS`, or there are fewer than two starts.
    """
    if history.spread is None or history.num_after < LASTING_NIGHTS or len(levels) < 2:
        return None
    today = float(np.mean(levels))
    since = np.array([*history.since[:-1], today])
    middle, far = float(np.median(since)), _FAR * history.spread
    expected = history.before + _find_own(change)
    moved = middle + float((since - middle).clip(-far, far).mean()) - expected
    starts = float(np.std(levels, ddof=1)) / math.sqrt(len(levels)) / len(since)
    nights = history.spread * math.sqrt(
        history.share(history.num_before) + history.share(len(since))
    )
    error = math.hypot(nights, starts)
    scale = history.scale
    freedom, least = history.num_before - 1, math.log1p(scale.smallest)
    if error == 0.0:
        return None
    places = history.num_before + history.num_after
    p = min(1.0, 2 * t_tail(abs(moved) / error, freedom) * places)
    half = t_quantile(1 - ALPHA / 2, freedom) * error
    shift = history.after - expected
    agrees = moved * shift > 0 and abs(shift) > least
    left = today - expected
    rest = moved + _find_own(change) - (change.log_ratio or 0.0 if change else 0.0)
    clears = abs(moved) - half > least and min(abs(moved), abs(rest)) > math.log1p(scale.bound)
    verdict: Verdict = "unknown"
    reason = f"the nights before spread by {format_percent(math.expm1(history.spread), 1)}"
    if abs(moved) <= least or (clears and not agrees):
        verdict, reason = "same", "as it was before"
    elif clears and (moved * left < 0 or abs(left) <= least):
        reason = "these starts do not show it"
    elif clears and history.known:
        verdict, reason = "same", f"{KNOWN_LEVEL} for {history.known} nights"
    elif clears and history.num_after <= _LONGER * history.longest_spell:
        reason = f"a spell of {history.longest_spell} nights there ended before"
    elif clears:
        least_shown = format_percent(scale.smallest)
        verdict, reason = "different", f"beyond {least_shown} from the nights before"
    return Judgement(
        verdict=verdict, log_ratio=moved, low=moved - half, high=moved + half, p=p, reason=reason
    )


def _find_own(change: Judgement | None) -> float:
    """What the environments certainly changed, as a log ratio: 0 if the 95 % interval includes
    0."""
    if change is None or change.log_ratio is None or change.low is None or change.high is None:
        return 0.0
    return change.log_ratio if change.low > 0 or change.high < 0 else 0.0

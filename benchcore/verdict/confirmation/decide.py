"""Decide a suspicion from fresh starts of old and new environments: whether the ratio changed, and
whether a framework (which, by how much) or the machine caused it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from benchcore.names import FRAMEWORK_NAMES, format_move, format_signed
from benchcore.verdict.allocations import judge_allocations
from benchcore.verdict.confirmation.machine_check import (
    MachineCheck,
    check_machine,
    describe_machine,
    judge_machine_level,
)
from benchcore.verdict.history.conditions import describe_changes
from benchcore.verdict.history.levels import CERTAIN, HistoryLevels
from benchcore.verdict.history.thresholds import LASTING_NIGHTS, STEP_SCALE, SeriesScale
from benchcore.verdict.samples import Judgement, Preference, swap_sides

Start = Mapping[str, Mapping[int, float]]
"""One start: nanoseconds per step in each round, by cell; of another metric one amount, as round 0.

`a_old`, `a_new`, `b_old` and `b_new` are both sides in the environments of before and after the
change; `control` is `a_old` once more. A side with an unchanged environment has the same rounds in
both of its cells. `gemm` and `copy`, if present, measure the machine itself
(`benchcore.verdict.confirmation.machine_check`)."""
CulpritSide = Literal["a", "b", "both", "neither", "infrastructure", "unknown"]
Answer = Literal["confirmed", "refuted", "unknown", "more"]

LOOKS = (5, 8, 12)
"""Numbers of starts after which an undecided suspicion is judged."""
ALPHA = 0.01
"""Probability of confirming a suspicion where nothing changed, over all looks together."""

_CHANGE: Mapping[str, int] = {"b_new": 1, "a_new": -1, "b_old": -1, "a_old": 1}
_CONTROL: Mapping[str, int] = {"control": 1, "a_old": -1}
_DIFFER_ALPHA = 0.05
_FEW_STARTS = 6
"""Up to this many starts can agree by chance, so their spread counts as at least that of another
contrast of the same starts: of the control, or for the control that of the ratio."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Log ratios with their intervals over starts, the decision on the suspicion, and its cause.

    `change` is the change of log(T_b / T_a) from the old environments to the new ones. `a` and `b`
    are log(T_new / T_old) of one side, above 0 = slower; None = its environment is unchanged, so it
    can't be the cause. `control` compares the old environment of a with itself: identical ones
    differ a little by order or place, so only beyond the bound is it `different`. `level` is the
    log(T_b / T_a) of today with the new environments. `machine_level` is its distance from the
    nights before if no framework changed; None = it can't be judged. `machine` is the result of the
    probe without a framework; None = there was none. `rest` is what the nights certainly moved
    beyond a framework's change, which the reason names, too.
    """

    num_starts: int
    change: Judgement
    a: Judgement | None
    b: Judgement | None
    control: Judgement
    level: float | None
    machine: MachineCheck | None = None
    machine_level: Judgement | None = None
    verdict: Answer = "more"
    culprit: CulpritSide = "unknown"
    reason: str = ""
    rest: str = ""


def judge_cells(starts: Sequence[Start], scale: SeriesScale = STEP_SCALE) -> Finding:
    """What the starts show of each side, of the ratio and of the control, before a decision."""
    least = _measure_spread(starts, _CONTROL)
    a, b = (_judge_side(starts, side, scale, least) for side in ("a", "b"))
    if a is not None and b is not None:
        change = _judge(starts, _CHANGE, scale, least)
    elif a is None and b is None:
        enough = len(starts) > 1
        reason = "neither environment has changed" if enough else "fewer than two starts"
        change = Judgement(verdict="same" if enough else "unknown", reason=reason)
    else:  # one side is unchanged, so the ratio changed by the other side's effect
        change = b if a is None else _negate(a)
        assert change is not None
    levels = [pairs.mean() for pairs in _contrasts(starts, {"b_new": 1, "a_new": -1})]
    return Finding(
        num_starts=len(starts),
        change=change,
        a=a,
        b=b,
        control=_judge(starts, _CONTROL, scale, _measure_spread(starts, _CHANGE), "relevant"),
        level=float(np.mean(levels)) if levels else None,
        machine=check_machine(starts),
    )


def _measure_spread(starts: Sequence[Start], terms: Mapping[str, int]) -> float:
    """The standard deviation of a contrast over a few starts; 0 with enough starts."""
    means = [float(pairs.mean()) for pairs in _contrasts(starts, terms)]
    return float(np.std(means, ddof=1)) if 1 < len(means) <= _FEW_STARTS else 0.0


def _judge_side(
    starts: Sequence[Start], side: str, scale: SeriesScale, least: float
) -> Judgement | None:
    old, new = f"{side}_old", f"{side}_new"
    if all(start.get(old) == start.get(new) for start in starts):
        return None
    return _judge(starts, {new: 1, old: -1}, scale, least)


def _negate(found: Judgement) -> Judgement:
    log_ratio, low, high = swap_sides(found.log_ratio, found.low, found.high)
    return replace(found, log_ratio=log_ratio, low=low, high=high)


def _judge(
    starts: Sequence[Start],
    terms: Mapping[str, int],
    scale: SeriesScale,
    least: float,
    prefer: Preference = "same",
) -> Judgement:
    contrasts, floor = _contrasts(starts, terms), max(scale.least_spread, least)
    return judge_allocations(contrasts, scale.bound, prefer=prefer, noise_floor=floor)


def _contrasts(starts: Sequence[Start], terms: Mapping[str, int]) -> list[np.ndarray]:
    """One array per start with rounds of all these cells: the signed sum of their logs, one value
    per such round."""
    arrays = []
    for start in starts:
        cells = [(start.get(name, {}), sign) for name, sign in terms.items()]
        shared = sorted(set.intersection(*(set(rounds) for rounds, _ in cells)))
        if shared:
            logs = [sign * np.log([rounds[each] for each in shared]) for rounds, sign in cells]
            arrays.append(np.sum(logs, axis=0))
    return arrays


def decide(
    starts_of: Sequence[tuple[Sequence[Start], HistoryLevels]],
    *,
    final: bool,
    num_looks: int = len(LOOKS),
    alpha: float = ALPHA,
) -> list[Finding]:
    """Decide each of a night's suspicions from its starts so far.

    Each of the `num_looks` looks has its share of `alpha`. A `different` suspicion is confirmed if
    it passes the false-discovery control over all tests of the night: of the ratio, of the control,
    and of the machine's level. `same` refutes it. Others need `more` starts, and stay `unknown` at
    the `final` look, like a lasting change without a known cause. Two kinds of changes need more
    starts, too: those whose side is not certain yet, and those that only show in starts in which
    the machine itself was slower. At the final look such a change is
    `infrastructure`.
    """
    judged = [_judge_all(starts, history) for starts, history in starts_of]
    look = alpha / num_looks
    findings = []
    passed = _pass_all(judged, look)
    for (starts, history), each, sure in zip(starts_of, judged, passed, strict=True):
        culprit, reason = _attribute(each, history, sure, look)
        verdict = _answer(each.change, "change" in sure, final)
        machine_reason = _suspect_machine(starts, each, look, history.scale)
        if machine_reason:
            culprit, reason = "infrastructure", machine_reason
        rest = _describe_rest(each, history) if culprit in ("a", "b", "both") else ""
        reason += f"; {rest}" if rest else ""
        if verdict == "confirmed" and not final and (machine_reason or not _is_settled(each, look)):
            verdict = "more"
        doubtful = each.control.verdict == "different" and "control" not in sure
        if verdict == "refuted" and not final and doubtful:
            verdict = "more"  # the machine may have changed, so these starts refute nothing yet
        if verdict == "refuted" and culprit == "infrastructure":
            verdict = "confirmed"
        if verdict == "refuted" and culprit == "unknown" and history.num_after >= LASTING_NIGHTS:
            verdict = "unknown"
        findings.append(replace(each, verdict=verdict, culprit=culprit, reason=reason, rest=rest))
    return findings


def _judge_all(starts: Sequence[Start], history: HistoryLevels) -> Finding:
    """All tests of one suspicion; the machine's level is only tested if both sides are the same."""
    judged = judge_cells(starts, history.scale)
    if not _is_still(judged):
        return judged
    levels = [float(pairs.mean()) for pairs in _contrasts(starts, {"b_new": 1, "a_new": -1})]
    level = judge_machine_level(levels, history, judged.change)
    return replace(judged, machine_level=level)


_Claim = Literal["change", "control", "machine_level"]
_CLAIMS: tuple[_Claim, ...] = ("change", "control", "machine_level")


def _pass_all(judged: Sequence[Finding], alpha: float) -> list[set[_Claim]]:
    """Which tests of each suspicion pass the false-discovery control over all tests of the night.

    A test that is not `different` makes no claim: it counts as a test, and never passes.
    """
    tests: list[tuple[int, _Claim, float]] = []
    for number, each in enumerate(judged):
        for claim in _CLAIMS:
            found: Judgement | None = getattr(each, claim)
            if found is not None and found.p is not None:
                tests.append((number, claim, found.p if found.verdict == "different" else 1.0))
    passed = pass_false_discovery([p for *_, p in tests], alpha)
    sure: list[set[_Claim]] = [set() for _ in judged]
    for (number, claim, p), passes in zip(tests, passed, strict=True):
        if passes and p < 1.0:
            sure[number].add(claim)
    return sure


def pass_false_discovery(p_values: Iterable[float | None], alpha: float) -> list[bool]:
    """Which p-values pass Benjamini and Hochberg's step-up procedure: the expected share of false
    ones among them is at most `alpha`. None never passes."""
    known = [1.0 if p is None else p for p in p_values]
    order = sorted(range(len(known)), key=lambda each: known[each])
    last = 0
    for rank, each in enumerate(order, start=1):
        if known[each] <= alpha * rank / len(known):
            last = rank
    passing = set(order[:last])
    return [each in passing for each in range(len(known))]


def _answer(change: Judgement, sure: bool, final: bool) -> Answer:
    if change.verdict == "same":
        return "refuted"
    if change.verdict == "different" and sure:
        return "confirmed"
    return "unknown" if final else "more"


def _is_settled(judged: Finding, alpha: float) -> bool:
    """Whether each side is known to have changed or not, or the control shows a change."""
    return _moved(judged.control, alpha) or all(
        side is None or side.verdict == "same" or _moved(side, alpha)
        for side in (judged.a, judged.b)
    )


def _attribute(
    judged: Finding, history: HistoryLevels, sure: set[_Claim], alpha: float
) -> tuple[CulpritSide, str]:
    if "control" in sure:
        change = _format_change(judged.control)
        return "infrastructure", f"the old environment differs from itself by {change}"
    effects = {"a": judged.a, "b": judged.b}
    moved = [side for side in ("a", "b") if _moved(effects[side], alpha)]
    if moved:
        changes = " and ".join(
            f"{_name(getattr(history, side))} by {_format_change(effects[side])}" for side in moved
        )
        culprit: CulpritSide = "both" if len(moved) == 2 else "a" if moved == ["a"] else "b"
        return culprit, f"the {history.noun} changed in {changes}"
    if not _is_still(judged) or judged.level is None:
        return "unknown", judged.change.reason
    still = f"old and new environments have the same {history.noun}"
    level = judged.machine_level
    if level is None or level.verdict == "same":
        where = "" if level is None else f"; the ratio is {level.reason}"
        return "neither", f"{still}, so no framework changed{where}"
    if "machine_level" in sure:
        changes = describe_changes(history.changes)
        together = f"; since then, but in no night before: {changes}" if changes else ""
        return "infrastructure", (
            f"{still}, but the ratio is still at the new level: "
            f"{_format_change(level)} from the level before{_describe_steps(history)}{together}"
        )
    return "unknown", (
        f"{still}; whether the machine changed the ratio is open: "
        f"{_format_change(level)} from the level before"
    )


def _name(side: str) -> str:
    """`PyTorch (control)` of `torch (control)`."""
    framework, *rest = side.split(" ", 1)
    return " ".join([FRAMEWORK_NAMES.get(framework, framework), *rest])


def _describe_steps(history: HistoryLevels) -> str:
    """`, in 2 steps: +4.9 % on 2026-01-21 and +4.7 % on 2026-01-25`; "" if it came in one."""
    named = [f"{format_signed(math.expm1(size))} on {at:%Y-%m-%d}" for at, size in history.steps]
    return f", in {len(named)} steps: {' and '.join(named)}" if named else ""


def _describe_rest(judged: Finding, history: HistoryLevels) -> str:
    """What the ratio certainly moved in the nights beyond what these starts show, if it matters:
    the machine may have changed in the same night. "" if there is nothing."""
    change, spread = judged.change, history.spread
    if change.log_ratio is None or change.low is None or change.high is None or spread is None:
        return ""
    moved = history.after - history.before
    rest = moved - change.log_ratio
    shares = history.share(history.num_before) + history.share(history.num_after)
    error = CERTAIN * spread * math.sqrt(shares) + (change.high - change.low) / 2
    if history.num_after < LASTING_NIGHTS or abs(rest) <= error + math.log1p(history.scale.bound):
        return ""
    moved_by, unexplained = (format_signed(math.expm1(each)) for each in (moved, rest))
    return (
        f"in the nights the ratio moved by {moved_by}, and these starts do not "
        f"explain {unexplained} of it"
    )


def _is_still(judged: Finding) -> bool:
    """Whether no framework changed: neither the ratio nor either side's time."""
    sides = (judged.a, judged.b)
    return judged.change.verdict == "same" and all(
        each is None or each.verdict == "same" for each in sides
    )


def _suspect_machine(
    starts: Sequence[Start], judged: Finding, alpha: float, scale: SeriesScale
) -> str | None:
    """Why the machine may have caused the change: it was slower in some starts, these differ from
    the others, and the others alone don't show the change. None = it did not."""
    slow = judged.machine.slow if judged.machine else ()
    if not slow or judged.change.verdict == "same":
        return None
    steady = [each for index, each in enumerate(starts) if index not in slow]
    change = judge_cells(steady, scale).change
    same_way = (change.log_ratio or 0.0) * (judged.change.log_ratio or 0.0) > 0
    if _moved(change, alpha) and same_way:
        return None
    if not _differ([starts[index] for index in slow], steady):
        return None
    assert judged.machine is not None
    return f"{describe_machine(judged.machine)}, and the others do not show it: {change.reason}"


def _differ(some: Sequence[Start], others: Sequence[Start]) -> bool:
    """Whether the ratio changed differently in `some` starts: Student's t at 5 %, with one variance
    for both groups, because one of them may be a single start."""
    from scipy import stats

    changes = [
        [float(pairs.mean()) for pairs in _contrasts(each, _CHANGE)] for each in (some, others)
    ]
    if not all(changes) or sum(map(len, changes)) < 3:
        return False
    interval = stats.ttest_ind(*changes).confidence_interval(1 - _DIFFER_ALPHA)
    return bool(interval.low > 0 or interval.high < 0)


def _moved(effect: Judgement | None, alpha: float) -> bool:
    if effect is None or effect.p is None:
        return False
    return effect.verdict == "different" and effect.p <= alpha


def _format_change(effect: Judgement | None) -> str:
    assert effect is not None and effect.log_ratio is not None
    assert effect.low is not None and effect.high is not None
    return format_move(*map(math.expm1, (effect.log_ratio, effect.low, effect.high)))

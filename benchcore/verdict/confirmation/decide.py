"""Decide a suspicion from fresh starts of old and new environments: whether the ratio moved, which
framework moved it and by how much, or whether the machine did."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from benchcore.verdict.allocations import judge_allocations
from benchcore.verdict.confirmation.machine_check import (
    MachineCheck,
    check_machine,
    describe_machine,
)
from benchcore.verdict.confirmation.machine_level import LASTING_NIGHTS, judge_machine_level
from benchcore.verdict.history.levels import HistoryLevels
from benchcore.verdict.samples import EQUIVALENCE_BOUND, Judgement, swap_sides

Start = Mapping[str, Mapping[int, float]]
"""Of one start: the nanoseconds of a step in each round, by cell: `a_old`, `a_new`, `b_old` and
`b_new` are both sides in the environments of before and after, and `control` is `a_old` once more.
A side whose environment did not change has the same rounds under both of its cells. `gemm` and
`copy`, where they are, are the machine itself (`benchcore.verdict.confirmation.machine_check`)."""
Blamed = Literal["a", "b", "both", "neither", "infrastructure", "unknown"]
Answer = Literal["confirmed", "refuted", "unknown", "more"]

LOOKS = (5, 8, 12)
"""Starts after which a suspicion is judged, as long as it is undecided."""
ALPHA = 0.01
"""Of a suspicion being confirmed where nothing changed, over all rungs of the ladder together."""

_CHANGE: Mapping[str, int] = {"b_new": 1, "a_new": -1, "b_old": -1, "a_old": 1}
_DIFFER_ALPHA = 0.05


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Log ratios with their intervals, from starts as samples; what is to be done about the
    suspicion, and whom its starts blame.

    `change` is how log(T_b / T_a) changed from the old environments to the new ones. `a` and `b`
    are log(T_new / T_old) of one side, above 0 = slower; None = its environment is the same, and
    so can't have changed anything. `control` is the old environment of a against itself. `level` is
    today's log(T_b / T_a) with the new environments, and `machine_level` is how far it is from the
    nights before, where no framework moved; None = it can't be judged. `machine` is what its probe
    without a framework says; None = there was none.
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
    culprit: Blamed = "unknown"
    reason: str = ""


def judge_cells(starts: Sequence[Start], bound: float = EQUIVALENCE_BOUND) -> Finding:
    """What the starts say of each side, of the ratio, and of the control; undecided as yet."""
    a, b = (_judge_side(starts, side, bound) for side in ("a", "b"))
    if a is not None and b is not None:
        change = _judge(starts, _CHANGE, bound)
    elif a is None and b is None:
        enough = len(starts) > 1
        reason = "both environments are the ones of before" if enough else "fewer than two starts"
        change = Judgement(verdict="same" if enough else "unknown", reason=reason)
    else:  # where one side alone may have changed, the ratio changed by that side's effect
        change = b if a is None else _negate(a)
        assert change is not None
    levels = [pairs.mean() for pairs in _contrasts(starts, {"b_new": 1, "a_new": -1})]
    return Finding(
        num_starts=len(starts),
        change=change,
        a=a,
        b=b,
        control=_judge(starts, {"control": 1, "a_old": -1}, bound),
        level=float(np.mean(levels)) if levels else None,
        machine=check_machine(starts),
    )


def _judge_side(starts: Sequence[Start], side: str, bound: float) -> Judgement | None:
    old, new = f"{side}_old", f"{side}_new"
    if all(start.get(old) == start.get(new) for start in starts):
        return None
    return _judge(starts, {new: 1, old: -1}, bound)


def _negate(found: Judgement) -> Judgement:
    log_ratio, low, high = swap_sides(found.log_ratio, found.low, found.high)
    return replace(found, log_ratio=log_ratio, low=low, high=high)


def _judge(starts: Sequence[Start], terms: Mapping[str, int], bound: float) -> Judgement:
    return judge_allocations(_contrasts(starts, terms), bound, prefer="same")


def _contrasts(starts: Sequence[Start], terms: Mapping[str, int]) -> list[np.ndarray]:
    """One array a start that has such rounds: the signed sum of the logs, one value a round that
    all of these cells ran."""
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
    bound: float = EQUIVALENCE_BOUND,
    alpha: float = ALPHA,
) -> list[Finding]:
    """What each of a night's suspicions is, by its starts so far.

    Each rung of the ladder is one of `num_looks`, and has its share of `alpha`. What is `different`
    is confirmed if it passes the false-discovery control over all tests of the night: of the
    ratio, of the control, and of the machine's level. `same` is refuted; else it takes `more`
    starts, and on the `final` rung stays `unknown`, as does a change that lasts and whose cause no
    test shows. More are also taken while it is open whether a side moved, so that the right one is
    blamed, and while a change shows only with starts in which the machine itself was slower: on the
    final rung such a change is `infrastructure`.
    """
    judged = [_judge_all(starts, asked, bound) for starts, asked in starts_of]
    look = alpha / num_looks
    findings = []
    for (starts, asked), each, sure in zip(starts_of, judged, _pass_all(judged, look), strict=True):
        culprit, reason = _attribute(each, asked, sure, look)
        verdict = _answer(each.change, "change" in sure, final)
        blamed = _blame_machine(starts, each, look, bound)
        if blamed:
            culprit, reason = "infrastructure", blamed
        if verdict == "confirmed" and not final and (blamed or not _is_settled(each, look)):
            verdict = "more"
        if verdict == "refuted" and culprit == "infrastructure":
            verdict = "confirmed"
        if verdict == "refuted" and culprit == "unknown" and asked.num_after >= LASTING_NIGHTS:
            verdict = "unknown"
        findings.append(replace(each, verdict=verdict, culprit=culprit, reason=reason))
    return findings


def _judge_all(starts: Sequence[Start], asked: HistoryLevels, bound: float) -> Finding:
    """Each test of one suspicion; the machine's is only made where both sides are the same."""
    judged = judge_cells(starts, bound)
    if not _is_still(judged):
        return judged
    levels = [float(pairs.mean()) for pairs in _contrasts(starts, {"b_new": 1, "a_new": -1})]
    return replace(judged, machine_level=judge_machine_level(levels, asked))


_Claim = Literal["change", "control", "machine_level"]
_CLAIMS: tuple[_Claim, ...] = ("change", "control", "machine_level")


def _pass_all(judged: Sequence[Finding], alpha: float) -> list[set[_Claim]]:
    """Which tests of each suspicion pass the false-discovery control over all tests of the night.

    What is not `different` makes no claim: it counts as a test, and never passes.
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
    """Which of them Benjamini and Hochberg's step-up procedure lets pass: of those, at most the
    share `alpha` is expected to be false. None never passes."""
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
    """Whether each side is known to have moved or not, or the control says that neither tells."""
    return _moved(judged.control, alpha) or all(
        side is None or side.verdict == "same" or _moved(side, alpha)
        for side in (judged.a, judged.b)
    )


def _attribute(
    judged: Finding, asked: HistoryLevels, sure: set[_Claim], alpha: float
) -> tuple[Blamed, str]:
    if "control" in sure:
        told = _tell(judged.control)
        return "infrastructure", f"the old environment differs from itself by {told}"
    effects = {"a": judged.a, "b": judged.b}
    moved = [side for side in ("a", "b") if _moved(effects[side], alpha)]
    if moved:
        told = " and ".join(f"{getattr(asked, side)} by {_tell(effects[side])}" for side in moved)
        culprit: Blamed = "both" if len(moved) == 2 else "a" if moved == ["a"] else "b"
        return culprit, f"a step's time changed in {told}"
    if not _is_still(judged) or judged.level is None:
        return "unknown", judged.change.reason
    level = judged.machine_level
    if level is None or level.verdict == "same":
        return "neither", "old and new environments are equally fast, and so no framework moved"
    if "machine_level" in sure:
        return "infrastructure", (
            "old and new environments are equally fast, and the ratio stays where the nights are "
            f"since: {_tell(level)} from the level before"
        )
    return "unknown", (
        "old and new environments are equally fast; whether the machine moved the ratio is open: "
        f"{_tell(level)} from the level before"
    )


def _is_still(judged: Finding) -> bool:
    """Whether no framework moved: neither the ratio nor either side's time."""
    sides = (judged.a, judged.b)
    return judged.change.verdict == "same" and all(
        each is None or each.verdict == "same" for each in sides
    )


def _blame_machine(
    starts: Sequence[Start], judged: Finding, alpha: float, bound: float
) -> str | None:
    """Why what these starts show may be the machine's doing: in some of them it was slower itself,
    and these differ from the others, which alone do not show it. None = it is not."""
    slow = judged.machine.slow if judged.machine else ()
    if not slow or judged.change.verdict == "same":
        return None
    steady = [each for index, each in enumerate(starts) if index not in slow]
    change = judge_cells(steady, bound).change
    same_way = (change.log_ratio or 0.0) * (judged.change.log_ratio or 0.0) > 0
    if _moved(change, alpha) and same_way:
        return None
    if not _differ([starts[index] for index in slow], steady):
        return None
    assert judged.machine is not None
    return f"{describe_machine(judged.machine)}, and the others do not show it: {change.reason}"


def _differ(some: Sequence[Start], others: Sequence[Start]) -> bool:
    """Whether the ratio changed by another amount in some starts than in others: Student's t at
    5 %, with one spread for both, as one of them may be a single start."""
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


def _tell(effect: Judgement | None) -> str:
    assert effect is not None and effect.log_ratio is not None
    assert effect.low is not None and effect.high is not None
    middle, low, high = (math.expm1(each) for each in (effect.log_ratio, effect.low, effect.high))
    return f"{middle:+.1%} ({low:+.1%} to {high:+.1%})"

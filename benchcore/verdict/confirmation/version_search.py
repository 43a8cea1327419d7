"""Find the version that changed a metric, by binary search.

Each decision is a verdict over fresh starts. The culprit is measured again against its predecessor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from benchcore.verdict.confirmation.decide import ALPHA, LOOKS
from benchcore.verdict.samples import Judgement

T = TypeVar("T")
Purpose = Literal["ends", "search", "verify", "rest"]
"""`ends`: good against bad. `search`: good against a version between. `verify`: the culprit against
its predecessor, in new starts. `rest`: the culprit against bad."""
JudgePair = Callable[[str, str, int, bool], Judgement]
"""Called with the old version, the new one, the total number of starts, and whether starts of
earlier rounds are excluded. Judges the log of new over old: above 0 = the new one costs more."""


@dataclass(frozen=True, kw_only=True)
class SearchRound:
    """One pair and its verdict; `unknown` if all of its starts did not decide it."""

    purpose: Purpose
    old: str
    new: str
    num_starts: int
    found: Judgement


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """`version` changed by `effect` against `before`. The `undecided` versions between the two
    could not be judged, and may be the cause instead."""

    version: str
    before: str
    undecided: tuple[str, ...]
    effect: Judgement


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """`found`: every culprit was verified. `same`: good and bad do not differ. `unverified`: the
    search ended at a pair that does not differ in new starts. `unknown`: the starts could not
    decide whether good and bad, or the last pair, differ. `reason` is "" if the last
    culprit is bad itself."""

    verdict: Literal["found", "same", "unverified", "unknown"]
    reason: str
    culprits: tuple[Culprit, ...]
    rounds: tuple[SearchRound, ...]


def bisect(
    versions: Sequence[str], judge_pair: JudgePair, looks: Sequence[int] = LOOKS
) -> Bisection:
    """Find the change between the first version, which is good, and the last one, which is bad.

    If a culprit explains only a part of it, the versions after the culprit are searched too. A
    change that was reverted between two measured versions stays hidden. Raises ValueError for fewer
    than two versions.
    """
    if len(versions) < 2:
        raise ValueError(f"wanted at least two versions, got {len(versions)}")
    return _Search(versions, judge_pair, looks).run()


@dataclass
class _Search:
    versions: Sequence[str]
    judge_pair: JudgePair
    looks: Sequence[int]
    rounds: list[SearchRound] = field(default_factory=list)
    culprits: list[Culprit] = field(default_factory=list)
    slower: bool = True

    def run(self) -> Bisection:
        """Judge both ends, then search one culprit after the other."""
        last = len(self.versions) - 1
        ends = self._judge("ends", 0, last)
        if ends.verdict == "same":
            return self._end("same", f"good and bad do not differ: {ends.reason}")
        if ends.verdict == "unknown":
            return self._end("unknown", f"whether good and bad differ is unknown: {ends.reason}")
        self.slower = (ends.log_ratio or 0.0) > 0
        base = 0
        while True:
            low, high, undecided = self._narrow(base, last)
            effect = self._judge("verify", low, high)
            if not self._moved(effect):
                return self._give_up(low, high, effect)
            self.culprits.append(
                Culprit(
                    version=self.versions[high],
                    before=self.versions[low],
                    undecided=tuple(self.versions[each] for each in undecided),
                    effect=effect,
                )
            )
            if high == last:
                return self._end("found", "")
            rest = self._judge("rest", high, last)
            if not self._moved(rest):
                return self._end("found", _describe_rest(rest))
            base = high

    def _narrow(self, base: int, last: int) -> tuple[int, int, list[int]]:
        """The nearest versions on both sides of the change, and the undecided ones between them:
        base is good, last is bad."""
        low, high = base, last
        undecided = list[int]()
        while candidates := [each for each in range(low + 1, high) if each not in undecided]:
            middle = min(candidates, key=lambda each: abs(2 * each - low - high))
            found = self._judge("search", base, middle)
            if found.verdict == "unknown":
                undecided.append(middle)
            elif self._moved(found):
                high = middle
            else:
                low = middle
        return low, high, [each for each in undecided if low < each < high]

    def _moved(self, found: Judgement) -> bool:
        """Whether it changed in the direction of the ends; the other direction counts as good."""
        assert found.verdict != "different" or found.log_ratio is not None
        return found.verdict == "different" and ((found.log_ratio or 0.0) > 0) == self.slower

    def _judge(self, purpose: Purpose, old: int, new: int) -> Judgement:
        pair = self.versions[old], self.versions[new]
        found, num_starts = judge_in_looks(
            self.judge_pair, *pair, self.looks, fresh=purpose == "verify"
        )
        self.rounds.append(
            SearchRound(
                purpose=purpose, old=pair[0], new=pair[1], num_starts=num_starts, found=found
            )
        )
        return found

    def _give_up(self, low: int, high: int, effect: Judgement) -> Bisection:
        pair = f"{self.versions[low]} and {self.versions[high]}"
        if self.culprits:
            return self._end("found", f"fresh starts of {pair} do not show the rest of the change")
        if effect.verdict == "unknown":
            return self._end(
                "unknown", f"fresh starts can't decide whether {pair} differ: {effect.reason}"
            )
        return self._end("unverified", f"fresh starts of {pair} contradict it: {effect.reason}")

    def _end(
        self, verdict: Literal["found", "same", "unverified", "unknown"], reason: str
    ) -> Bisection:
        return Bisection(
            verdict=verdict,
            reason=reason,
            culprits=tuple(self.culprits),
            rounds=tuple(self.rounds),
        )


def judge_in_looks(
    judge_pair: Callable[[T, T, int, bool], Judgement],
    old: T,
    new: T,
    looks: Sequence[int],
    *,
    fresh: bool = False,
) -> tuple[Judgement, int]:
    """The first verdict that is not `unknown`, and its number of starts. `different` needs the
    significance of a confirmation."""
    found, num_starts = Judgement(reason="nothing was measured"), 0
    for num_starts in looks:
        found = _require_significance(judge_pair(old, new, num_starts, fresh))
        if found.verdict != "unknown":
            break
    return found, num_starts


def _require_significance(found: Judgement) -> Judgement:
    if found.verdict == "different" and (found.p is None or found.p > ALPHA):
        reason = f"p is {found.p}, and a culprit needs at most {ALPHA}"
        return Judgement(**{**vars(found), "verdict": "unknown", "reason": reason})
    return found


def _describe_rest(rest: Judgement) -> str:
    if rest.verdict == "same":
        return "nothing else changed after the last culprit"
    if rest.verdict == "different":
        return "after the last culprit the time changed in the other direction"
    return f"whether more changed after the last culprit is unknown: {rest.reason}"

"""Find the version that changed the time of a step by binary search.

Each answer is a verdict over fresh starts. The culprit is measured again against its predecessor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from benchcore.verdict.confirmation.decide import ALPHA, LOOKS
from benchcore.verdict.samples import Judgement

T = TypeVar("T")
Purpose = Literal["ends", "search", "verify", "rest"]
"""Good against bad; good against one between; the culprit against the version before it, in starts
that nothing was decided by; the culprit against bad."""
Ask = Callable[[str, str, int, bool], Judgement]
"""Old and new version, how many starts all in all, and whether none of an earlier question may be
among them. Answers with log(T_new / T_old): above 0 = the new one is slower."""


@dataclass(frozen=True, kw_only=True)
class SearchRound:
    """One question and its answer. `found.verdict` is `unknown` where all starts did not tell."""

    purpose: Purpose
    old: str
    new: str
    num_starts: int
    found: Judgement


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """`version` changed by `effect` against `before`. `untold` lie between the two, could not be
    told, and may be it as well."""

    version: str
    before: str
    untold: tuple[str, ...]
    effect: Judgement


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """`found`: every culprit was verified. `same`: good and bad do not differ. `unverified`: the
    search ended, and the pair it ended at does not differ. `unknown`: good and bad, or that pair,
    could not be told apart."""

    verdict: Literal["found", "same", "unverified", "unknown"]
    reason: str
    culprits: tuple[Culprit, ...]
    steps: tuple[SearchRound, ...]


def bisect(versions: Sequence[str], ask: Ask, ladder: Sequence[int] = LOOKS) -> Bisection:
    """Find what changed between the first version, which is good, and the last, which is bad.

    Where a culprit explains only part, what is after it is searched, too. A change that came and
    went between two versions that were asked for stays hidden. Raises ValueError for fewer than two
    versions.
    """
    if len(versions) < 2:
        raise ValueError(f"wanted two versions at least, got {len(versions)}")
    return _Search(versions, ask, ladder).run()


@dataclass
class _Search:
    versions: Sequence[str]
    ask: Ask
    ladder: Sequence[int]
    steps: list[SearchRound] = field(default_factory=list)
    culprits: list[Culprit] = field(default_factory=list)
    direction: bool = True

    def run(self) -> Bisection:
        """From the ends to the last culprit."""
        last = len(self.versions) - 1
        ends = self._tell("ends", 0, last)
        if ends.verdict == "same":
            return self._end("same", f"good and bad are equally fast: {ends.reason}")
        if ends.verdict == "unknown":
            return self._end("unknown", f"good and bad can't be told apart: {ends.reason}")
        self.direction = (ends.log_ratio or 0.0) > 0
        base = 0
        while True:
            low, high, untold = self._narrow(base, last)
            effect = self._tell("verify", low, high)
            if not self._moved(effect):
                return self._give_up(low, high, effect)
            self.culprits.append(
                Culprit(
                    version=self.versions[high],
                    before=self.versions[low],
                    untold=tuple(self.versions[each] for each in untold),
                    effect=effect,
                )
            )
            if high == last:
                return self._end("found", "the culprit is the last version")
            rest = self._tell("rest", high, last)
            if not self._moved(rest):
                return self._end("found", _tell_rest(rest))
            base = high

    def _narrow(self, base: int, last: int) -> tuple[int, int, list[int]]:
        """The nearest two that lie on either side of the change, and those between that could not
        be told: base is good, last is bad."""
        low, high = base, last
        untold = list[int]()
        while candidates := [each for each in range(low + 1, high) if each not in untold]:
            middle = min(candidates, key=lambda each: abs(2 * each - low - high))
            found = self._tell("search", base, middle)
            if found.verdict == "unknown":
                untold.append(middle)
            elif self._moved(found):
                high = middle
            else:
                low = middle
        return low, high, [each for each in untold if low < each < high]

    def _moved(self, found: Judgement) -> bool:
        """Whether it changed the way that the ends did; the other way, it is as good as good."""
        assert found.verdict != "different" or found.log_ratio is not None
        return found.verdict == "different" and ((found.log_ratio or 0.0) > 0) == self.direction

    def _tell(self, purpose: Purpose, old: int, new: int) -> Judgement:
        pair = self.versions[old], self.versions[new]
        found, num_starts = judge_in_looks(self.ask, *pair, self.ladder, fresh=purpose == "verify")
        step = SearchRound(
            purpose=purpose, old=pair[0], new=pair[1], num_starts=num_starts, found=found
        )
        self.steps.append(step)
        return found

    def _give_up(self, low: int, high: int, effect: Judgement) -> Bisection:
        pair = f"{self.versions[low]} and {self.versions[high]}"
        if self.culprits:
            return self._end("found", f"after it, fresh starts of {pair} do not show the rest")
        if effect.verdict == "unknown":
            return self._end("unknown", f"fresh starts can't tell {pair} apart: {effect.reason}")
        return self._end("unverified", f"fresh starts of {pair} contradict it: {effect.reason}")

    def _end(
        self, verdict: Literal["found", "same", "unverified", "unknown"], reason: str
    ) -> Bisection:
        return Bisection(
            verdict=verdict,
            reason=reason,
            culprits=tuple(self.culprits),
            steps=tuple(self.steps),
        )


def judge_in_looks(
    ask: Callable[[T, T, int, bool], Judgement],
    old: T,
    new: T,
    ladder: Sequence[int],
    *,
    fresh: bool = False,
) -> tuple[Judgement, int]:
    """Up the ladder until it is told; and after how many starts. `different` must be as sure as for
    a confirmation."""
    found, num_starts = Judgement(reason="nothing was asked"), 0
    for num_starts in ladder:
        found = _be_sure(ask(old, new, num_starts, fresh))
        if found.verdict != "unknown":
            break
    return found, num_starts


def _be_sure(found: Judgement) -> Judgement:
    if found.verdict == "different" and (found.p is None or found.p > ALPHA):
        reason = f"p is {found.p}, and a culprit takes {ALPHA} at most"
        return Judgement(**{**vars(found), "verdict": "unknown", "reason": reason})
    return found


def _tell_rest(rest: Judgement) -> str:
    if rest.verdict == "same":
        return "nothing else changed after the last culprit"
    if rest.verdict == "different":
        return "after the last culprit it went the other way"
    return f"whether more changed after the last culprit is unknown: {rest.reason}"

"""Find the dependency that changed the time of a step.

Searches environments between an old and a new one, each with more packages moved to the new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Literal

from benchcore.verdict.confirmation.decide import LOOKS
from benchcore.verdict.confirmation.version_search import Bisection, Culprit, bisect, judge_in_looks
from benchcore.verdict.samples import Judgement

Moved = frozenset[str]
"""The moves that an environment has had; none = the old one."""
Ask = Callable[[Moved, Moved, int, bool], Judgement]
"""As `benchcore.verdict.confirmation.version_search.Ask`, of two environments."""
Manner = Literal["alone", "together", "untold"]


@dataclass(frozen=True, kw_only=True)
class MovePath:
    """A way from the old environment to the new one: after each step an environment that can be
    resolved. A step is what moves at once, several packages where the resolver ties them.
    `refused`: what can't be moved where it was tried, and what the resolver said."""

    steps: tuple[tuple[str, ...], ...]
    refused: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Blame:
    """A culprit, `packages`, by `effect` beside what was moved before it.

    `alone`: moved alone, it changes the time as well. `together`: moved alone it does not;
    `partners` are what it takes, as far as they were found. `untold`: its move alone could not be
    told, or can't be resolved; `reason` says which.
    """

    packages: tuple[str, ...]
    effect: Judgement
    manner: Manner
    partners: tuple[str, ...]
    reason: str
    alone: Judgement | None = None


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The search over the path, and what each culprit of it does alone."""

    search: Bisection
    blames: tuple[Blame, ...]


def find_path(names: Sequence[str], why_not: Callable[[Moved], str | None]) -> MovePath:
    """Move one package after the other, in this order where the resolver allows it; else the
    fewest at once that it allows, of two, or of all that are left.

    `why_not` says why an environment can't be resolved; None = it can. The one in which all have
    moved is the new one, which is there. The same reason is told once, of what met it first.
    """
    left, moved = list(names), frozenset[str]()
    steps, refused = list[tuple[str, ...]](), dict[str, str]()
    while left:
        group = tuple(left)
        for fewer in _list_groups(left):
            told = why_not(moved | set(fewer))
            if told is None:
                group = fewer
                break
            if told not in refused.values():
                refused[_tell_try(fewer, moved)] = told
        steps.append(group)
        moved |= set(group)
        left = [each for each in left if each not in group]
    return MovePath(steps=tuple(steps), refused=tuple(refused.items()))


def _list_groups(left: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Of fewer than all that are left: of one, then of two."""
    return chain.from_iterable(combinations(left, size) for size in (1, 2) if size < len(left))


def _tell_try(group: Sequence[str], moved: Moved) -> str:
    beside = f" beside {', '.join(sorted(moved))}" if moved else ""
    return " and ".join(group) + beside


def search_dependencies(
    path: MovePath,
    ask: Ask,
    why_not: Callable[[Moved], str | None],
    ladder: Sequence[int] = LOOKS,
) -> Attribution:
    """Bisect over the path; then move each culprit alone, and where that does not show it, find
    what it takes beside it. Raises ValueError for a path without a step."""
    found, at = _bisect(frozenset(), path.steps, ask, ladder)
    blames = tuple(_blame(each, at, path, ask, why_not, ladder) for each in found.culprits)
    return Attribution(search=found, blames=blames)


def _bisect(
    base: Moved, steps: Sequence[tuple[str, ...]], ask: Ask, ladder: Sequence[int]
) -> tuple[Bisection, dict[str, int]]:
    """Over the environments after each step, beginning with `base`; and at which place each is."""
    states = [base]
    for step in steps:
        states.append(states[-1] | set(step))
    named = {name_state(state): state for state in states}

    def ask_by_name(old: str, new: str, num_starts: int, fresh: bool) -> Judgement:
        return ask(named[old], named[new], num_starts, fresh)

    places = {name: place for place, name in enumerate(named)}
    return bisect(tuple(named), ask_by_name, ladder), places


def name_state(moved: Moved) -> str:
    """Of an environment: what was moved, in order of the alphabet."""
    return "+".join(sorted(moved)) or "old"


def _blame(
    culprit: Culprit,
    at: dict[str, int],
    path: MovePath,
    ask: Ask,
    why_not: Callable[[Moved], str | None],
    ladder: Sequence[int],
) -> Blame:
    low, high = at[culprit.before], at[culprit.version]
    packages = tuple(each for step in path.steps[low:high] for each in step)
    before, own = path.steps[:low], frozenset(packages)
    told = Blame(packages=packages, effect=culprit.effect, manner="alone", partners=(), reason="")
    if not before:
        return _replace(told, alone=culprit.effect, reason="nothing else had been moved")
    refusal = why_not(own)
    if refusal is not None:
        return _replace(
            told, manner="untold", reason=f"moved alone it can't be resolved: {refusal}"
        )
    alone = judge_in_looks(ask, frozenset[str](), own, ladder)[0]
    same_way = (alone.log_ratio or 0.0) * (culprit.effect.log_ratio or 0.0) > 0
    if alone.verdict == "different" and same_way:
        return _replace(told, alone=alone, reason="moved alone, it does the same")
    if alone.verdict == "unknown":
        reason = f"what it does alone is unknown: {alone.reason}"
        return _replace(told, manner="untold", alone=alone, reason=reason)
    partners, reason = _find_partners(own, before, ask, why_not, ladder)
    return _replace(told, manner="together", alone=alone, partners=partners, reason=reason)


def _replace(blame: Blame, **changes: object) -> Blame:
    return Blame(**{**vars(blame), **changes})


def _find_partners(
    own: Moved,
    before: Sequence[tuple[str, ...]],
    ask: Ask,
    why_not: Callable[[Moved], str | None],
    ladder: Sequence[int],
) -> tuple[tuple[str, ...], str]:
    """What of that which had been moved before it takes for the culprit to show."""
    steps, waiting, moved = list[tuple[str, ...]](), tuple[str, ...](), own
    for step in before:
        waiting += step
        if step == before[-1] or why_not(moved | set(waiting)) is None:
            steps.append(waiting)
            moved |= set(waiting)
            waiting = ()
    found, at = _bisect(own, steps, ask, ladder)
    if not found.culprits:
        every = tuple(each for step in before for each in step)
        return every, f"which of these it takes is not known: {found.reason}"
    partners = tuple(
        each
        for culprit in found.culprits
        for step in steps[at[culprit.before] : at[culprit.version]]
        for each in step
    )
    return partners, "moved alone, it changes nothing"

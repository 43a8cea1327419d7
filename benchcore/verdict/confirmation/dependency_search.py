"""Find the dependency that changed the time of a step.

Searches environments between an old and a new one, each with more packages at the new version.
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
"""An environment: the packages that have moved to the new version; none = the old environment."""
JudgePair = Callable[[Moved, Moved, int, bool], Judgement]
"""As `benchcore.verdict.confirmation.version_search.JudgePair`, for two environments."""
WhyNot = Callable[[Moved], str | None]
"""Why the resolver refuses an environment; None = it resolves."""
Manner = Literal["alone", "together", "undecided"]


@dataclass(frozen=True, kw_only=True)
class MovePath:
    """`moves` from the old environment to the new one. Each moves one package, or several that the
    resolver ties together, and ends at an environment that resolves. `refused`: each refused move
    and the resolver's reason."""

    moves: tuple[tuple[str, ...], ...]
    refused: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class PackageCulprit:
    """`packages` that changed the time by `effect`, on top of those moved before them.

    `alone`: they also change it without the others. `together`: they need `partners`, as far as
    known. `undecided`: their effect alone is undecided, or that environment doesn't resolve;
    `reason` has which.
    """

    packages: tuple[str, ...]
    effect: Judgement
    manner: Manner
    partners: tuple[str, ...]
    reason: str
    alone: Judgement | None = None


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The search over the path, and each culprit's effect alone."""

    search: Bisection
    culprits: tuple[PackageCulprit, ...]


def find_path(names: Sequence[str], why_not: WhyNot) -> MovePath:
    """Move the packages in this order, one at a time if the resolver allows it, else two, else all
    that remain.

    The new environment, with all packages moved, exists and is not resolved. Each of the resolver's
    reasons is recorded once, with the first move that it refused.
    """
    left, moved = list(names), frozenset[str]()
    moves, refused = list[tuple[str, ...]](), dict[str, str]()
    while left:
        group = tuple(left)
        for fewer in _list_groups(left):
            refusal = why_not(moved | set(fewer))
            if refusal is None:
                group = fewer
                break
            if refusal not in refused.values():
                refused[_describe_move(fewer, moved)] = refusal
        moves.append(group)
        moved |= set(group)
        left = [each for each in left if each not in group]
    return MovePath(moves=tuple(moves), refused=tuple(refused.items()))


def _list_groups(left: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Groups of one package, then of two, but not of all that remain."""
    return chain.from_iterable(combinations(left, size) for size in (1, 2) if size < len(left))


def _describe_move(group: Sequence[str], moved: Moved) -> str:
    after = f" after {', '.join(sorted(moved))}" if moved else ""
    return " and ".join(group) + after


def search_dependencies(
    path: MovePath,
    judge_pair: JudgePair,
    why_not: WhyNot,
    looks: Sequence[int] = LOOKS,
) -> Attribution:
    """Bisect over the path; then move each culprit alone, and if that changes nothing, find the
    partners it needs. Raises ValueError for a path without moves."""
    found, at = _bisect(frozenset(), path.moves, judge_pair, looks)
    culprits = tuple(
        _test_alone(each, at, path, judge_pair, why_not, looks) for each in found.culprits
    )
    return Attribution(search=found, culprits=culprits)


def _bisect(
    base: Moved, moves: Sequence[tuple[str, ...]], judge_pair: JudgePair, looks: Sequence[int]
) -> tuple[Bisection, dict[str, int]]:
    """Bisect the environments after each move, starting with `base`; also return their indices."""
    states = [base]
    for move in moves:
        states.append(states[-1] | set(move))
    named = {name_state(state): state for state in states}

    def judge_named(old: str, new: str, num_starts: int, fresh: bool) -> Judgement:
        return judge_pair(named[old], named[new], num_starts, fresh)

    positions = {name: position for position, name in enumerate(named)}
    return bisect(tuple(named), judge_named, looks), positions


def name_state(moved: Moved) -> str:
    """An environment's name: its moved packages in alphabetical order."""
    return "+".join(sorted(moved)) or "old"


def _test_alone(
    culprit: Culprit,
    at: dict[str, int],
    path: MovePath,
    judge_pair: JudgePair,
    why_not: WhyNot,
    looks: Sequence[int],
) -> PackageCulprit:
    low, high = at[culprit.before], at[culprit.version]
    packages = tuple(each for move in path.moves[low:high] for each in move)
    before, own = path.moves[:low], frozenset(packages)
    found = PackageCulprit(
        packages=packages, effect=culprit.effect, manner="alone", partners=(), reason=""
    )
    if not before:
        return _replace(found, alone=culprit.effect, reason="no other package had changed")
    refusal = why_not(own)
    if refusal is not None:
        return _replace(
            found, manner="undecided", reason=f"it could not be changed alone, as {refusal}"
        )
    alone = judge_in_looks(judge_pair, frozenset[str](), own, looks)[0]
    same_way = (alone.log_ratio or 0.0) * (culprit.effect.log_ratio or 0.0) > 0
    if alone.verdict == "different" and same_way:
        return _replace(found, alone=alone, reason="changed alone, it has the same effect")
    if alone.verdict == "unknown":
        reason = f"its effect alone is unknown: {alone.reason}"
        return _replace(found, manner="undecided", alone=alone, reason=reason)
    partners, reason = _find_partners(own, before, judge_pair, why_not, looks)
    return _replace(found, manner="together", alone=alone, partners=partners, reason=reason)


def _replace(culprit: PackageCulprit, **changes: object) -> PackageCulprit:
    return PackageCulprit(**{**vars(culprit), **changes})


def _find_partners(
    own: Moved,
    before: Sequence[tuple[str, ...]],
    judge_pair: JudgePair,
    why_not: WhyNot,
    looks: Sequence[int],
) -> tuple[tuple[str, ...], str]:
    """Find those of the packages moved `before` without which the culprit has no effect."""
    moves, waiting, moved = list[tuple[str, ...]](), tuple[str, ...](), own
    for move in before:
        waiting += move
        if move == before[-1] or why_not(moved | set(waiting)) is None:
            moves.append(waiting)
            moved |= set(waiting)
            waiting = ()
    found, at = _bisect(own, moves, judge_pair, looks)
    if not found.culprits:
        every = tuple(each for move in before for each in move)
        return every, f"which of these it needs is unknown: {found.reason}"
    partners = tuple(
        each
        for culprit in found.culprits
        for move in moves[at[culprit.before] : at[culprit.version]]
        for each in move
    )
    return partners, "changed alone, it has no effect"

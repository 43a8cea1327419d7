"""What `deadheat bisect --dependencies` does: which package between two environments changed a
case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchcore.bisection import Laboratory, Question, judge_pairs, read_pairs
from benchcore.dependencies import (
    Between,
    build,
    compare_ends,
    draft_pair,
    keep_environments,
    list_first,
    why_not,
)
from benchcore.errors import CampaignIncompleteError, EnvironmentBuildError
from benchcore.protocol import EnvironmentRecord
from benchcore.releases import parse_request
from benchcore.shard import result_path
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.verdict.bisection import Bisection
from benchcore.verdict.dependencies import (
    Attribution,
    Blame,
    Moved,
    find_path,
    name_state,
    search_dependencies,
)
from benchcore.verdict.samples import Judgement
from flows.printing import ERR, OUT, print_rows
from flows.running import Runner, measure_plan

_MOST_NAMED = 3
_MOST_FIRST = 12
_Key = tuple[Moved, Moved, bool]


@dataclass
class _Asker:
    """Builds and measures the environments that the search asks for, and remembers them."""

    question: Question
    where: Laboratory
    between: Between
    state: State
    engine: Engine
    run: Runner
    built: dict[Moved, EnvironmentRecord] = field(default_factory=dict)
    known: dict[_Key, list[np.ndarray]] = field(default_factory=dict)
    begun: dict[_Key, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    campaigns: list[str] = field(default_factory=list)
    first: list[dict[str, Any]] | None = None
    """What differed between both ends but packages; None = not looked at yet."""

    def ask(self, old: Moved, new: Moved, num_starts: int, fresh: bool) -> Judgement:
        """As `benchcore.verdict.dependencies.Ask` says. What can't be built stays unknown."""
        key, named = (old, new, fresh), f"{_shorten(old)} against {_shorten(new)}"
        pairs, begun = self.known.setdefault(key, []), self.begun.get(key, 0)
        lost = list[str]()
        if num_starts > begun:
            ERR.print(f"{named}: starts {begun + 1} to {num_starts}", markup=False)
            try:
                more, lost = self._measure(key, range(begun, num_starts))
            except (EnvironmentBuildError, CampaignIncompleteError) as error:
                more, lost = [], [str(error)]
            pairs += more
            self.begun[key] = num_starts
            self.lost += [f"{named}: {each}" for each in lost]
        return judge_pairs(pairs, lost, self.question.bound)

    def _measure(self, key: _Key, starts: range) -> tuple[list[np.ndarray], list[str]]:
        from benchcore.store.documents import read_document
        from benchcore.store.queries import duels_to_judge

        *states, fresh = key
        records = [self._provide(each) for each in states]
        look = self.first is None
        plan = draft_pair(
            self.question, records, starts, self.where, again=bool(fresh), passes=look
        )
        measure = measure_plan(plan, self.state)
        keep_environments(plan, records, self.state)
        self.run(measure, self.state, plan.campaign)
        self.campaigns.append(plan.campaign)
        planned = {duel.duel_run for duel in plan.duels}
        if look:
            (path,) = (result_path(self.state, plan.campaign, each) for each in planned)
            self.first = list_first(read_document(path))
        found = duels_to_judge(self.engine, plan.campaign)
        return read_pairs([each for each in found if each.duel_run in planned])

    def _provide(self, moved: Moved) -> EnvironmentRecord:
        if moved not in self.built:
            report = ERR.print
            self.built[moved] = build(self.between, moved, self.state, report)
        return self.built[moved]


def blame_dependencies(
    question: Question, where: Laboratory, ladder: tuple[int, ...], state: State, run: Runner
) -> dict[str, Any]:
    """Search what lies between the question's ends, versions or locks. Raises UserError."""
    framework = parse_request(question.framework).framework
    between = compare_ends(framework, (question.good, question.bad), where)
    listed = ", ".join(between.moves)
    ERR.print(f"the locks differ in {listed}", markup=False, soft_wrap=True)
    ask_resolver = why_not(between)
    path = find_path(between.moves, ask_resolver)
    engine = open_database(state.database_url)
    asker = _Asker(question, where, between, state, engine, run)
    found = search_dependencies(path, asker.ask, ask_resolver, ladder)
    return _describe(found, asker, path.refused)


def _describe(
    found: Attribution, asker: _Asker, refused: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    between, search = asker.between, found.search
    return {
        "verdict": search.verdict,
        "words": _say(found),
        "reason": search.reason,
        "old": asker.question.good,
        "new": asker.question.bad,
        "moves": [
            {"package": each, "old": between.old[each], "new": between.new[each]}
            for each in between.moves
        ],
        "differences": asker.first or [],
        "refused": [{"move": move, "reason": reason} for move, reason in refused],
        "blames": [_describe_blame(each) for each in found.blames],
        "steps": describe_steps(search),
        "lost": asker.lost,
        "campaigns": asker.campaigns,
    }


def describe_steps(search: Bisection) -> list[dict[str, Any]]:
    """What was asked and answered, in order; `ratio` is how many times as long the newer takes."""
    return [
        {
            "purpose": each.purpose,
            "old": each.old,
            "new": each.new,
            "starts": each.num_starts,
            "verdict": each.found.verdict,
            **each.found.ratios,
            "reason": each.found.reason,
        }
        for each in search.steps
    ]


def _describe_blame(blame: Blame) -> dict[str, Any]:
    return {
        "packages": blame.packages,
        "manner": blame.manner,
        "partners": blame.partners,
        **blame.effect.ratios,
        "alone": blame.alone and {**blame.alone.ratios, "verdict": blame.alone.verdict},
        "reason": blame.reason,
    }


def _say(found: Attribution) -> str:
    """One sentence: `numpy makes a step take 1.05 times as long (1.04 to 1.06)`."""
    if not found.blames:
        return f"no dependency is to blame: {found.search.reason}"
    return f"{'; '.join(_say_blame(each) for each in found.blames)}; {found.search.reason}"


def _say_blame(blame: Blame) -> str:
    factor = blame.effect.ratios
    words = f"{' and '.join(blame.packages)} makes a step take {factor['ratio']:.3g} times as long"
    words += f" ({factor['low']:.3g} to {factor['high']:.3g})"
    if blame.manner == "together":
        words += f", but only together with {', '.join(blame.partners)}"
    return f"{words}: {blame.reason}"


def _shorten(moved: Moved) -> str:
    """For people: names of a few, else how many."""
    few = len(moved) <= _MOST_NAMED
    return name_state(moved) if few else f"{len(moved)} moved"


_PURPOSES = {
    "ends": "does any of them?",
    "search": "among these?",
    "verify": "the culprit, measured anew",
    "rest": "is it all?",
}


def print_dependencies(told: Mapping[str, Any]) -> None:
    """What differs, each question with its answer, then the culprit."""
    title = "Packages that differ, the likeliest first"
    print_rows(told["moves"], ("package", "old", "new"), title=title)
    if told["differences"]:
        columns = ("kind", "name", "old", "new")
        title = "What else differs: look at this first"
        print_rows(told["differences"][:_MOST_FIRST], columns, title=title)
    rows = [
        {
            **step,
            "asked": _PURPOSES[step["purpose"]],
            **{side: _shorten_name(step[side]) for side in ("old", "new")},
            "times as long": step["ratio"],
        }
        for step in told["steps"]
    ]
    columns = ("asked", "old", "new", "verdict", "times as long", "starts")
    print_rows(rows, columns, title="Packages moved from their old version to the new one")
    said = [f"{each['move']} can't be moved: {each['reason']}" for each in told["refused"]]
    said += [f"a start does not count: {each}" for each in dict.fromkeys(told["lost"])]
    for words in (*said, told["words"]):
        OUT.print(words, markup=False, soft_wrap=True, highlight=False)


def _shorten_name(name: str) -> str:
    return _shorten(frozenset(name.split("+"))) if name != "old" else name

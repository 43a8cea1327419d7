"""The command `deadheat bisect`: which version of a framework changed a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import typer

from benchcore.bisection import (
    Laboratory,
    Question,
    draft_step,
    find_candidates,
    judge_pairs,
    read_pairs,
)
from benchcore.catalog import check_case
from benchcore.dependencies import is_lock
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.interpreters import find_interpreters
from benchcore.matrix import check_device
from benchcore.profiles import Profile, load_profile
from benchcore.protocol import write_json
from benchcore.state import State, open_state
from benchcore.store.database import Engine, open_database
from benchcore.verdict.bisection import Bisection
from benchcore.verdict.bisection import bisect as search
from benchcore.verdict.confirmation import LADDER
from benchcore.verdict.samples import EQUIVALENCE_BOUND, Judgement
from flows.commands.confirm import check_ladder
from flows.commands.dependencies import blame_dependencies, describe_steps, print_dependencies
from flows.commands.options import (
    STATE,
    BoundOption,
    DeviceOption,
    JsonOption,
    ProfileOption,
    PythonOption,
    SiteOption,
    StateOption,
)
from flows.printing import ERR, OUT, complain, print_json, print_rows
from flows.running import Runner, measure_plan, run_flow

_BY = "deadheat bisect"


@dataclass(frozen=True, kw_only=True)
class Bisecting:
    """What a user asks for."""

    question: Question
    ladder: tuple[int, ...]
    profile: Profile
    site: str
    python: str | None = None
    dependencies: bool = False
    """Whether the package is wanted, too, or alone, if the question's ends are locks."""
    event: int | None = None
    """In whose history the outcome is noted."""


@dataclass
class _Asker:
    """Measures what the search asks for, and remembers it: more starts are added to those known."""

    question: Question
    where: Laboratory
    state: State
    engine: Engine
    run: Runner
    known: dict[tuple[str, str, bool], list[np.ndarray]] = field(default_factory=dict)
    begun: dict[tuple[str, str, bool], int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    campaigns: list[str] = field(default_factory=list)

    def ask(self, old: str, new: str, num_starts: int, fresh: bool) -> Judgement:
        """As `benchcore.verdict.bisection.Ask` says."""
        key = (old, new, fresh)
        pairs, begun = self.known.setdefault(key, []), self.begun.get(key, 0)
        lost = list[str]()
        if num_starts > begun:
            ERR.print(f"{old} against {new}: starts {begun + 1} to {num_starts}", markup=False)
            more, lost = self._measure(key, range(begun, num_starts))
            pairs += more
            self.begun[key] = num_starts
            self.lost += [f"{old} against {new}: {each}" for each in lost]
        return judge_pairs(pairs, lost, self.question.bound)

    def _measure(
        self, key: tuple[str, str, bool], starts: range
    ) -> tuple[list[np.ndarray], list[str]]:
        from benchcore.store.queries import duels_to_judge

        old, new, fresh = key
        again = "-again" if fresh else ""
        name = f"{self.question.name}-{old}-{new}-{starts.stop}{again}".lower().replace("+", "-")
        plan = draft_step(self.question, (old, new), starts, self.where, name)
        try:
            self.run(measure_plan(plan, self.state), self.state, plan.campaign)
        except CampaignIncompleteError as error:
            return [], [str(error)]
        self.campaigns.append(name)
        planned = {duel.duel_run for duel in plan.duels}  # not those of another Python
        records = duels_to_judge(self.engine, name)
        return read_pairs([each for each in records if each.duel_run in planned])


def bisect(
    framework: Annotated[str, typer.Argument(help="jax or torch.")],
    workload: Annotated[str, typer.Option("--workload", help="Name of the workload.")],
    case: Annotated[str, typer.Option("--case", help="Case of the workload.")],
    good: Annotated[str, typer.Option("--good", help="An older version, before it; or a lock.")],
    bad: Annotated[str, typer.Option("--bad", help="A newer version, after it; or a lock.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the arm, as compare's --a-set.")
    ] = None,
    starts: Annotated[
        list[int] | None,
        typer.Option("--starts", help="Starts to judge after, again for more; default 5, 8, 12."),
    ] = None,
    bound: BoundOption = EQUIVALENCE_BOUND,
    dependencies: Annotated[
        bool, typer.Option("--dependencies", help="Then find the package that did it.")
    ] = False,
    event: Annotated[
        int | None, typer.Option("--event", help="Note the outcome in this event's history.")
    ] = None,
    device: DeviceOption = "cpu",
    profile: ProfileOption = "laptop",
    site: SiteOption = "local",
    python: PythonOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Find the version that changed a case, between one before the change and one after it; with
    --dependencies also the package, between the locks of both, or between two of your own."""
    if framework not in ("jax", "torch"):
        raise UserError(f"wanted jax or torch, got {framework!r:.100}; name one")
    question = Question(
        framework=framework,
        good=good,
        bad=bad,
        workload=workload,
        case=case,
        settings=tuple(settings or ()),
        device=device,
        bound=bound,
    )
    order = Bisecting(
        question=question,
        ladder=check_ladder(starts or LADDER),
        profile=load_profile(profile),
        site=site,
        python=python,
        dependencies=dependencies,
        event=event,
    )
    told = find_culprit(order, open_state(state), run_flow)
    if as_json:
        print_json(told)
    else:
        _print_all(told)
    if told["verdict"] in ("unknown", "unverified"):
        complain(told["reason"])
        raise typer.Exit(1)


def find_culprit(order: Bisecting, state: State, run: Runner) -> dict[str, Any]:
    """Search, keep what was found, and tell it. Raises UserError."""
    question, engine = order.question, open_database(state.database_url)
    check_case(question.workload, question.case)
    check_device(question.device)
    _check_event(engine, order.event)
    locks = [is_lock(each) for each in (question.good, question.bad)]
    if any(locks) and not (all(locks) and order.dependencies):
        raise UserError(
            f"wanted two versions, or two locks and --dependencies, got {question.good[:100]!r} "
            f"and {question.bad[:100]!r}; name two of a kind"
        )
    if any(locks):
        where = Laboratory(profile=order.profile, site=order.site, python=order.python)
        told = blame_dependencies(question, where, order.ladder, state, run)
    else:
        told = _search_versions(order, state, engine, run)
    told["record"] = _keep(state, question, told)
    _note(engine, order.event, told)
    return told


def _search_versions(order: Bisecting, state: State, engine: Engine, run: Runner) -> dict[str, Any]:
    question = order.question
    candidates = find_candidates(question, find_interpreters(), order.python)
    listed = ", ".join(candidates.versions)
    ERR.print(f"on Python {candidates.python}: {listed}", markup=False, soft_wrap=True)
    where = Laboratory(profile=order.profile, site=order.site, python=candidates.python)
    asker = _Asker(question, where, state, engine, run)
    found = search(candidates.versions, asker.ask, order.ladder)
    told = describe(found, candidates.versions, asker.lost)
    told["campaigns"] = asker.campaigns
    pairs = [(each.before, each.version) for each in found.culprits if order.dependencies]
    asked = [replace(question, good=before, bad=version) for before, version in pairs]
    of = [blame_dependencies(each, where, order.ladder, state, run) for each in asked]
    told["dependencies"] = of
    told["words"] = "; ".join((told["words"], *(each["words"] for each in of)))
    return told


def _print_all(told: Mapping[str, Any]) -> None:
    for each in told["dependencies"] if "versions" in told else [told]:
        print_dependencies(each)
    if "versions" in told:
        print_bisection(told)
    OUT.print(f"Record: {told['record']}", markup=False, soft_wrap=True)


def _check_event(engine: Engine, event: int | None) -> None:
    """Before hours are measured: is there such an event?"""
    from benchcore.store.events import show_event

    if event is not None:
        show_event(engine, event)


def _note(engine: Engine, event: int | None, told: Mapping[str, Any]) -> None:
    from benchcore.store.events import annotate_event

    if event is not None:
        annotate_event(engine, event, who=_BY, note=told["words"])


def _keep(state: State, question: Question, told: Mapping[str, Any]) -> str:
    """Write the outcome into the state folder; its path."""
    folder = state.root / "bisections"
    folder.mkdir(exist_ok=True)
    path = folder / f"{question.name}.json"
    write_json(path, dict(told))
    return str(path)


def describe(found: Bisection, versions: tuple[str, ...], lost: list[str]) -> dict[str, Any]:
    """What a bisection found; every `ratio` is how many times as long a step of the newer takes."""
    return {
        "verdict": found.verdict,
        "words": _say(found),
        "reason": found.reason,
        "versions": versions,
        "culprits": [
            {
                "version": each.version,
                "before": each.before,
                "untold": each.untold,
                **each.effect.ratios,
            }
            for each in found.culprits
        ],
        "steps": describe_steps(found),
        "lost": lost,
    }


def _say(found: Bisection) -> str:
    """One sentence: `2.14.0 takes 1.05 times as long as 2.13.1 (1.04 to 1.06)`."""
    if not found.culprits:
        return f"no version is to blame: {found.reason}"
    said = []
    for each in found.culprits:
        factor = each.effect.ratios
        words = f"{each.version} takes {factor['ratio']:.3g} times as long as {each.before}"
        words += f" ({factor['low']:.3g} to {factor['high']:.3g})"
        if each.untold:
            words += f", where {', '.join(each.untold)} could not be told and may be it as well"
        said.append(words)
    return f"{'; '.join(said)}; {found.reason}"


_PURPOSES = {
    "ends": "do they differ at all?",
    "search": "on which side of it?",
    "verify": "the culprit, measured anew",
    "rest": "is it all?",
}


def print_bisection(told: Mapping[str, Any]) -> None:
    """Each question with its answer, then the culprit."""
    rows = [
        {
            **step,
            "asked": _PURPOSES[step["purpose"]],
            "times as long": step["ratio"],
            "95 %": None if step["low"] is None else f"{step['low']:.3g} to {step['high']:.3g}",
        }
        for step in told["steps"]
    ]
    columns = ("asked", "old", "new", "verdict", "times as long", "95 %", "starts")
    print_rows(rows, columns, title=f"Bisected over {len(told['versions'])} versions")
    for reason in dict.fromkeys(told["lost"]):
        OUT.print(f"a start does not count: {reason}", markup=False, soft_wrap=True)
    OUT.print(told["words"], markup=False, soft_wrap=True, highlight=False)

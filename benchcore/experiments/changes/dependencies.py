"""Find the dependency of a framework that changed a metric of a case: each round measures
two environments between the old and the new one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from benchcore.environments.version_requests import Release, parse_request
from benchcore.experiments.changes.dependency_moves import (
    EnvironmentPair,
    build,
    compare_ends,
    make_refusal_check,
)
from benchcore.experiments.changes.pairs import (
    BisectTarget,
    PairRounds,
    draft_profile,
    spread_starts,
)
from benchcore.experiments.compare import list_differences
from benchcore.experiments.rounds import Measurer, RunContext
from benchcore.planning.matrix import Plan, make_plan
from benchcore.planning.requests import parse_arm
from benchcore.protocol import EnvironmentRecord
from benchcore.running.duel_process import result_path
from benchcore.running.duels import store_environments
from benchcore.running.plans import load_campaign
from benchcore.running.sites import load_site
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.incoming.documents import read_document
from benchcore.verdict.confirmation.dependency_search import (
    Attribution,
    Moved,
    PackageCulprit,
    find_path,
    name_state,
    search_dependencies,
)
from benchcore.verdict.confirmation.version_search import Bisection
from benchcore.verdict.history.series import STEP_TIME

_MOST_NAMED = 3
_OTHER_KINDS = ("setting", "effective", "program")


def run_dependency_search(
    target: BisectTarget,
    context: RunContext,
    looks: tuple[int, ...],
    state: State,
    measurer: Measurer,
) -> dict[str, Any]:
    """Search the packages that differ between the target's ends, which are versions or locks, for
    the one that changed the case. Raises UserError."""
    pair = compare_ends(target.framework, (target.good, target.bad), context)
    measurer.report(f"the locks differ in {', '.join(pair.moves)}")
    built = dict[Moved, EnvironmentRecord]()

    def draft(old: Moved, new: Moved, starts: range, fresh: bool) -> Plan:
        for each in (old, new):
            if each not in built:
                built[each] = build(pair, each, state, measurer.report)
        records = [built[old], built[new]]
        first = not rounds.campaigns
        plan = draft_pair(target, records, starts, context, fresh=fresh, first=first)
        store_environments(plan, dict(zip(plan.releases, records, strict=True)), state)
        return plan

    rounds = PairRounds[Moved](
        target,
        measurer,
        open_database(state.database_url),
        draft,
        lambda old, new: f"{shorten_state(old)} against {shorten_state(new)}",
    )
    resolver = make_refusal_check(pair)
    path = find_path(pair.moves, resolver)
    found = search_dependencies(path, rounds.judge, resolver, looks)
    return {
        "verdict": found.search.verdict,
        "metric": target.metric,
        "summary": summarise_packages(found, target),
        "reason": found.search.reason,
        "old": target.good,
        "new": target.bad,
        "moves": _list_moves(pair),
        "differences": _read_other_differences(rounds.campaigns, state),
        "refused": [{"move": move, "reason": reason} for move, reason in path.refused],
        "culprits": [_describe_culprit(each) for each in found.culprits],
        "rounds": describe_rounds(found.search),
        "lost": rounds.lost,
        "campaigns": rounds.campaigns,
    }


def _list_moves(pair: EnvironmentPair) -> list[dict[str, str]]:
    return [{"package": each, "old": pair.old[each], "new": pair.new[each]} for each in pair.moves]


def _read_other_differences(campaigns: Sequence[str], state: State) -> list[dict[str, Any]]:
    """What else differs between both ends, from the only round whose programs were profiled."""
    if not campaigns:
        return []
    duel = load_campaign(state, campaigns[0]).duels[0]  # the others measure the ceilings
    return list_other_differences(read_document(result_path(state, campaigns[0], duel.duel_run)))


def describe_rounds(search: Bisection) -> list[dict[str, Any]]:
    """The rounds of the search in order; a `ratio` is the newer metric over the older."""
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
        for each in search.rounds
    ]


def _describe_culprit(culprit: PackageCulprit) -> dict[str, Any]:
    return {
        "packages": culprit.packages,
        "manner": culprit.manner,
        "partners": culprit.partners,
        **culprit.effect.ratios,
        "alone": culprit.alone and {**culprit.alone.ratios, "verdict": culprit.alone.verdict},
        "reason": culprit.reason,
    }


def summarise_packages(found: Attribution, target: BisectTarget) -> str:
    """`numpy makes a step take 1.05 times as long (1.04 to 1.06)`, per culprit, and the reasons."""
    if not found.culprits:
        return f"no dependency is the cause: {found.search.reason}"
    culprits = ". ".join(_summarise_culprit(each, target) for each in found.culprits)
    return "; ".join(filter(None, (culprits, found.search.reason)))


def _summarise_culprit(culprit: PackageCulprit, target: BisectTarget) -> str:
    factor = culprit.effect.ratios
    verb = "makes" if len(culprit.packages) == 1 else "make"
    effect = f"{verb} the {target.judged.noun} {factor['ratio']:.3g} times what it was"
    if target.metric == STEP_TIME:
        effect = f"{verb} a step take {factor['ratio']:.3g} times as long"
    text = f"{_name_packages(culprit.packages)} {effect}"
    text += f" ({factor['low']:.3g} to {factor['high']:.3g})"
    if culprit.manner == "together":
        text += f", but only together with {', '.join(culprit.partners)}"
    return f"{text}; {culprit.reason}"


def _name_packages(names: Sequence[str]) -> str:
    """`jaxlib and jax`; of many the first and the last, which is the framework if it moved."""
    if len(names) <= _MOST_NAMED:
        return " and ".join(names)
    return f"{len(names)} packages together, from {names[0]} to {names[-1]},"


def shorten_state(moved: Moved) -> str:
    """An environment's name for people: a few moved packages by name, else their number."""
    few = len(moved) <= _MOST_NAMED
    return name_state(moved) if few else f"{len(moved)} moved"


def draft_pair(
    target: BisectTarget,
    records: Sequence[EnvironmentRecord],
    starts: range,
    context: RunContext,
    *,
    fresh: bool = False,
    first: bool = False,
) -> Plan:
    """The plan of the next starts of two environments, in one duel, the old one first.

    The first round, between both ends, also profiles their programs and measures the ceilings.

    Raises UserError.
    """
    requested = parse_request(target.framework)
    framework = requested.framework
    plain = parse_arm(",".join((target.framework, *target.settings)))
    requests = [f"{framework}@system:{record.python}" for record in records]
    arms = tuple(replace(plain, request=each) for each in requests)
    releases = {
        request: Release(
            framework=framework,
            version=Version(record.packages[framework]).public,
            role="pinned",
            python=Path(record.python),
            python_version=record.python_version,
            extras=requested.extras,
        )
        for request, record in zip(requests, records, strict=True)
    }
    keys = hashlib.sha256(" ".join(record.key for record in records).encode()).hexdigest()[:10]
    profile = draft_profile(target, arms, starts, context, first=first, passes=first)
    plan = make_plan(
        profile,
        releases,
        campaign=f"{target.name}-{keys}-{starts.stop}{'-again' if fresh else ''}",
        site=load_site(context.site).name,
    )
    return spread_starts(plan, profile, target, starts)


def list_other_differences(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Other differences between both ends than packages: a changed setting or default, and the
    compiled program."""
    old, new = document["contenders"]
    return [
        {"kind": each["kind"], "name": each["name"], "old": each["a"], "new": each["b"]}
        for each in list_differences(old, new)
        if each["kind"] in _OTHER_KINDS and not each["name"].startswith("versions.")
    ]

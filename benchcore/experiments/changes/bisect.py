"""Find the version of a framework that changed a metric of a case: each round measures a
pair of versions. With `dependencies`, also find the package that did it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from packaging.version import Version

from benchcore.environments.interpreters import Interpreter, find_interpreters
from benchcore.environments.version_index import VersionIndex, check_answered, list_past_releases
from benchcore.environments.version_requests import parse_request, pick_interpreters
from benchcore.errors import UserError
from benchcore.experiments.changes.dependencies import describe_rounds, run_dependency_search
from benchcore.experiments.changes.dependency_moves import is_lock
from benchcore.experiments.changes.pairs import (
    BisectTarget,
    PairRounds,
    draft_profile,
    spread_starts,
)
from benchcore.experiments.rounds import Measurer, RunContext
from benchcore.planning.catalog import check_case, find_case, list_proven
from benchcore.planning.matrix import Plan, check_device
from benchcore.planning.requests import parse_arm
from benchcore.protocol import write_json
from benchcore.running.plans import draft_plan
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.history.events import annotate_event, show_event
from benchcore.store.history.history_documents import save_history
from benchcore.store.metric_values import PROVEN_ARMS
from benchcore.store.metrics import ERRORS, find_tracked
from benchcore.verdict.confirmation.version_search import Bisection
from benchcore.verdict.confirmation.version_search import bisect as search

_MOST_BETWEEN = 200
_AUTHOR = "deadheat bisect"
_ROUND_COLUMNS = ("purpose", "old", "new", "verdict", "ratio", "low", "high", "starts", "reason")


@dataclass(frozen=True, kw_only=True)
class BisectRequest:
    """What to search, and how to measure it."""

    target: BisectTarget
    looks: tuple[int, ...]
    """Numbers of starts after which a pair is judged."""
    context: RunContext
    dependencies: bool = False
    """Also find the dependency; if the target's ends are locks, find only that."""
    event: int | None = None
    """The event whose history records the outcome."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """All versions from good to bad that can be installed on one common Python."""

    versions: tuple[str, ...]
    python: str


def find_candidates(
    target: BisectTarget, interpreters: list[Interpreter], python: str | None = None
) -> Candidates:
    """Find the versions between, on the newest Python that both ends support.

    Raises UserError, also if the package index fails: the versions between are then unknown.
    """
    good, bad = (
        parse_request(f"{target.framework}=={each}").version for each in (target.good, target.bad)
    )
    assert good is not None and bad is not None, "a pinned request has a version"
    if Version(good) >= Version(bad):
        raise UserError(
            f"wanted a good version that is older than the bad one, got {good} and {bad}; "
            "swap --good and --bad: speed-ups are found as well"
        )
    framework = parse_request(target.framework).framework
    index = VersionIndex(framework)
    for each in pick_interpreters(interpreters, python):
        if all(_is_installable(index, version, each) for version in (good, bad)):
            between = list_past_releases(
                framework, [each], below=bad, above=good, count=_MOST_BETWEEN
            )
            return Candidates(versions=(good, *reversed(between.found), bad), python=each.minor)
    answer = " ".join(index.failures[-1].message.split())[:600] if index.failures else "nothing"
    raise UserError(
        f"wanted one Python on which both {target.framework} {good} and {bad} can be installed, "
        f"found none; put another one on PATH, or choose nearer versions; uv's answer: {answer}"
    )


def _is_installable(index: VersionIndex, version: str, interpreter: Interpreter) -> bool:
    if index.find_installable(version, [interpreter]):
        return True
    check_answered(index, 1)
    return False


def run_bisection(request: BisectRequest, state: State, measurer: Measurer) -> dict[str, Any]:
    """Find the culprit, and store the outcome as a record and in the event. Raises UserError."""
    target, engine = request.target, open_database(state.database_url)
    check_case(target.workload, target.case)
    check_device(target.device)
    parse_request(target.framework)
    _check_metric(target)
    if request.event is not None:
        show_event(engine, request.event)  # fails early if there is no such event
    locks = [is_lock(each) for each in (target.good, target.bad)]
    if any(locks) and not (all(locks) and request.dependencies):
        raise UserError(
            f"wanted two versions, or two locks and --dependencies, got {target.good[:100]!r} "
            f"and {target.bad[:100]!r}; name two of the same kind"
        )
    if any(locks):
        found = run_dependency_search(target, request.context, request.looks, state, measurer)
    else:
        found = _search_versions(request, state, engine, measurer)
    found["record"] = _save_record(state, target, found)
    if request.event is not None:
        annotate_event(engine, request.event, who=_AUTHOR, note=found["summary"])
        save_history(engine, state)
    return found


def _check_metric(target: BisectTarget) -> None:
    """Raises UserError for a metric that is not tracked, or an error that no proof of the target
    measures: no start would have a value."""
    if (metric := find_tracked(target.metric)) not in ERRORS:
        return
    arm = parse_arm(",".join((target.framework, *target.settings))).name
    if arm not in PROVEN_ARMS:
        raise UserError(
            f"wanted settings whose {target.metric} a proof measures ({', '.join(PROVEN_ARMS)}), "
            f"got {arm!r}; write `--set compile=none` alone for torch, and no --set for jax"
        )
    use_case = find_case(target.workload, target.case).use_case
    proven = list_proven(target.workload, use_case)
    if not proven:
        raise UserError(
            f"wanted a case whose {target.metric} a proof measures, got {target.workload} "
            f"{target.case}, and {target.workload} has no proof of the use case {use_case!r}; "
            "choose another --workload, --case or --metric"
        )
    if metric.path.removeprefix("proof.") not in proven:
        measured = ", ".join(each.key for each in ERRORS if each.path[len("proof.") :] in proven)
        raise UserError(
            f"wanted a metric that the proof of {target.workload} {target.case} measures "
            f"({measured}), got {target.metric!r}; choose one with --metric"
        )


def _search_versions(
    request: BisectRequest, state: State, engine: Engine, measurer: Measurer
) -> dict[str, Any]:
    target = request.target
    candidates = find_candidates(target, find_interpreters(), request.context.python)
    measurer.report(f"on Python {candidates.python}: {', '.join(candidates.versions)}")
    context = replace(request.context, python=candidates.python)

    def draft(old: str, new: str, starts: range, fresh: bool) -> Plan:
        first = not rounds.campaigns
        return draft_round(target, (old, new), starts, context, first=first, fresh=fresh)

    rounds = PairRounds(
        target, measurer, engine, draft, lambda a, b: f"{target.framework} {a} against {b}"
    )
    found = search(candidates.versions, rounds.judge, request.looks)
    described = _describe(found, candidates.versions, rounds)
    pairs = [(each.before, each.version) for each in found.culprits if request.dependencies]
    described["dependencies"] = [
        run_dependency_search(
            replace(target, good=before, bad=version), context, request.looks, state, measurer
        )
        for before, version in pairs
    ]
    summaries = [described["summary"], *(each["summary"] for each in described["dependencies"])]
    return {**described, "summary": ". ".join(summaries)}


def list_rounds(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rounds of a bisection, as rows of a table: first of versions, then of packages."""
    rounds = [row for each in (found, *found["dependencies"]) for row in each["rounds"]]
    return [{name: row[name] for name in _ROUND_COLUMNS} for row in rounds]


def is_undecided(found: Mapping[str, Any]) -> bool:
    """Whether a bisection ended without an answer."""
    return found["verdict"] in ("unknown", "unverified")


def draft_round(
    target: BisectTarget,
    pair: tuple[str, str],
    starts: range,
    context: RunContext,
    *,
    first: bool = False,
    fresh: bool = False,
) -> Plan:
    """The plan of the next starts of two versions, in one duel, and in the first round of the
    device's ceilings. Raises UserError."""
    again = "-again" if fresh else ""
    name = f"{target.name}-{pair[0]}-{pair[1]}-{starts.stop}{again}".lower().replace("+", "-")
    arms = tuple(
        parse_arm(",".join((f"{target.framework}=={version}", *target.settings)))
        for version in pair
    )
    profile = draft_profile(target, arms, starts, context, first=first)
    plan = draft_plan(profile, site=context.site, campaign=name, python=context.python)
    return spread_starts(plan, profile, target, starts)


def _save_record(state: State, target: BisectTarget, found: Mapping[str, Any]) -> str:
    """Write the outcome into the state folder; return its path."""
    folder = state.root / "bisections"
    folder.mkdir(exist_ok=True)
    path = folder / f"{target.name}.json"
    write_json(path, dict(found))
    return str(path)


def _describe(
    found: Bisection, versions: tuple[str, ...], rounds: PairRounds[str]
) -> dict[str, Any]:
    """The outcome as JSON; a `ratio` is the newer version's metric over the older's."""
    return {
        "verdict": found.verdict,
        "metric": rounds.target.metric,
        "summary": _summarise(found, rounds.target),
        "reason": found.reason,
        "versions": versions,
        "culprits": [
            {
                "version": each.version,
                "before": each.before,
                "undecided": each.undecided,
                **each.effect.ratios,
            }
            for each in found.culprits
        ],
        "rounds": describe_rounds(found),
        "lost": rounds.lost,
        "campaigns": rounds.campaigns,
    }


def _summarise(found: Bisection, target: BisectTarget) -> str:
    """`2.14.0 takes 1.05 times as long as 2.13.1 (1.04 to 1.06)`, per culprit, and the reason."""
    if not found.culprits:
        return f"no version is the cause: {found.reason}"
    parts = []
    for each in found.culprits:
        factor = each.effect.ratios
        text = target.describe_effect(each.version, each.before).format(f"{factor['ratio']:.3g}")
        text += f" ({factor['low']:.3g} to {factor['high']:.3g})"
        if each.undecided:
            text += (
                f"; {', '.join(each.undecided)} could not be judged and may be the cause instead"
            )
        parts.append(text)
    return "; ".join((*parts, found.reason or "the culprit is the last version"))

"""What a release changed: every case of its campaign in fresh starts of the new version against the
one before it, as long as the time budget lasts."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_index import find_previous_release
from benchcore.environments.version_requests import (
    parse_request,
    pick_interpreters,
    resolve,
)
from benchcore.errors import CampaignIncompleteError
from benchcore.experiments.alerting.alerts import (
    describe_factors,
    describe_failures,
    list_moves,
    name_release,
)
from benchcore.experiments.changes.pairs import BisectTarget
from benchcore.experiments.compare import list_differences
from benchcore.experiments.releases.cause import TimedMeasurer, list_blamed, search_cause
from benchcore.experiments.releases.duels import (
    ReleaseRequest,
    draft_fresh_starts,
    find_contender,
    find_duels,
    key_of,
)
from benchcore.experiments.releases.operations import add_operations, list_measured
from benchcore.experiments.rounds import Measurer, RunContext
from benchcore.planning.matrix import Plan
from benchcore.planning.release_profile import compare_versions
from benchcore.planning.requests import list_own_settings
from benchcore.protocol import EnvironmentRecord
from benchcore.running.duel_process import result_path
from benchcore.running.duels import is_measured, load_environment, store_environments
from benchcore.running.plans import draft_plan, is_planned, load_campaign, save_campaign
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.incoming.documents import read_document
from benchcore.store.records import case_of
from benchcore.store.reports.campaign import list_failures
from benchcore.store.reports.certificates import CHANGED, list_certificates
from benchcore.store.reports.guide import list_answers
from benchcore.store.reports.operations import Answer
from benchcore.store.reports.release_trends import list_trends
from benchcore.verdict.history.series import STEP_TIME

_DIFFERENCES = ("package", "setting", "effective", "program")
CERTIFICATE_COLUMNS = (
    "workload",
    "case_name",
    "track",
    "a_arm",
    "metric",
    "certificate",
    "change",
    "low",
    "high",
    "num_samples",
    "again",
    "reason",
)
"""What a run's page and an alert show of a certificate."""
_OF_ROW = ("workload", "case_name", "track", "device_fingerprint", "a_arm", "metric")
_Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ReleaseVerdict:
    """What a release changed.

    `rows` are certificates (`benchcore.store.reports.certificates`), changes first, those of step
    times before others, then what changed most; `again`: whether fresh starts gave them. Without
    them nothing is called a change. `differences` are the packages and the settings read back that
    differ between both versions' environments, `lost` the reasons why cases were not measured
    again. `largest` is the largest change of a step time, or else of another metric; None = none
    changed. `trends` are small changes of several releases that add up
    (`benchcore.store.reports.release_trends`).
    `operations` are the campaign's own answers about single operations, each with its `earlier`
    pair. `cause` is the answer of the search for the package behind `largest`; None = none ran.
    """

    request: ReleaseRequest
    rows: list[_Row]
    differences: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    lost: list[str] = field(default_factory=list[str])
    trends: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    operations: list[Answer] = field(default_factory=list[Answer])
    largest: BisectTarget | None = None
    cause: dict[str, Any] | None = None

    @property
    def search(self) -> str | None:
        """The command that finds the package behind the largest change; None = none changed, or it
        was found."""
        found = list_blamed(self.cause)
        return (
            None if found or not self.largest else f"{self.largest.search_command} --dependencies"
        )


def plan_release(
    framework: str, version: str, attempt: int, context: RunContext, budget_s: float, state: State
) -> ReleaseRequest:
    """The request of one attempt at a release, whose campaign has a plan: the saved one, else a new
    one against the release before it, with the operations that are measured again. Raises
    UserError."""
    new = str(parse_request(f"{framework}=={version}").version)
    campaign = f"release-{framework}-{new}-{attempt}".replace("+", "-")
    if not is_planned(state, campaign):
        old = find_previous_release(framework, new, pick_interpreters(find_interpreters(), None))
        profile = compare_versions(context.profile, framework, (new, old), name="release")
        notes = list[str]()
        newest = resolve(parse_request(framework), find_interpreters()).version
        if newest == new:
            profile = add_operations(profile, list_answers(open_database(state.database_url)))
        else:
            notes = [
                f"left out: single operations, as the newest {framework} is {newest}, not {new}"
            ]
        plan = draft_plan(profile, site=context.site, campaign=campaign, state=state)
        save_campaign(dataclasses.replace(plan, notes=(*plan.notes, *notes)), state)
    return ReleaseRequest(
        framework=framework,
        new=new,
        old=_find_old(load_campaign(state, campaign), framework, new),
        campaign=campaign,
        budget_s=budget_s,
    )


def _find_old(plan: Plan, framework: str, new: str) -> str:
    """The other version that the plan names; operations take whichever is the newest."""
    requests = [parse_request(each) for each in plan.releases]
    named = {str(each.version) for each in requests if each.framework == framework and each.version}
    (old,) = named - {new}
    return old


def describe_crashes(request: ReleaseRequest, state: State) -> str:
    """The failures of the new version in its campaign; "" = none."""
    failed = list_failures(open_database(state.database_url), request.campaign)
    return describe_failures(failed, request.new)


def list_details(found: ReleaseVerdict, dashboard: str) -> dict[str, Any]:
    """What the alert and the event hold besides the sentence: what every alert does
    (`alerts.PAYLOAD`, of the largest change), and the certificates."""
    request, changed = found.request, _list_changed(found.rows)
    first = changed[0] if changed else None
    return {
        "cause": name_release(request.framework, request.new, request.old),
        "culprit": ", ".join(list_blamed(found.cause)) or request.framework if changed else None,
        "series": first and f"{case_of(first)}: {first['a_arm']} against its previous version",
        "metric": first and first["metric"],
        "change": first and {**first["factors"], "verdict": "different"},
        "size": abs(math.log(first["factors"]["ratio"])) if first else 0.0,
        "moved": [describe_factors(each) for each in changed[1:]],
        "differences": found.differences,
        "conditions": [],  # both versions ran in the same duels
        "dashboard": dashboard,
        "again": found.largest and found.largest.repeat_command,
        "search": found.search,
        "previous": request.old,
        "certificates": [{name: row[name] for name in CERTIFICATE_COLUMNS} for row in found.rows],
        "trends": found.trends,
        "operations": list_moves(found.operations),
        "lost": found.lost,
    }


def judge_release(
    request: ReleaseRequest, context: RunContext, state: State, measurer: Measurer
) -> ReleaseVerdict:
    """Measure the cases of a release's campaign again, those first that seem to have changed most,
    and judge every metric of each; then search the package behind the largest change, if time is
    left. Run again, it measures what is missing. Raises UserError."""
    over = time.monotonic() + request.budget_s
    (verdict,) = judge_releases([request], state, measurer)
    timed = TimedMeasurer(measurer=measurer, over=over)
    cause = search_cause(verdict.largest, context, state, timed)
    return dataclasses.replace(verdict, cause=cause)


def judge_releases(
    requests: Sequence[ReleaseRequest], state: State, measurer: Measurer
) -> list[ReleaseVerdict]:
    """`judge_release` for several releases that were measured in one campaign and share its budget.
    What seems to have changed most in any of them is measured first."""
    engine = open_database(state.database_url)
    plan = load_campaign(state, requests[0].campaign)
    over = time.monotonic() + requests[0].budget_s
    rows = list_certificates(engine, campaigns=[plan.campaign])
    judged = [_Judged(request=each, first=_choose(rows, each)) for each in requests]
    for each, number in _order(plan, judged):
        again = draft_fresh_starts(
            plan, plan.duels[number], each.request, _name_again(plan, each, number)
        )
        if time.monotonic() < over:
            _measure_again(each, plan, again, state, measurer)
        else:
            _judge_measured(each, again, state)
    return [_conclude(each, plan, state, engine) for each in judged]


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """A request, its campaign's certificates, and what was measured again."""

    request: ReleaseRequest
    first: list[_Row]
    campaigns: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])


def _name_again(plan: Plan, judged: _Judged, number: int) -> str:
    return f"{plan.campaign}-{judged.request.new}-again-{number}".replace("+", "-")


def _judge_measured(judged: _Judged, again: Plan, state: State) -> None:
    """Judge what an earlier run measured, though the budget is spent."""
    measured = [is_measured(state, again, duel) for duel in again.duels]
    if any(measured):
        judged.campaigns.append(again.campaign)
    if not all(measured):
        title = again.duels[0].title
        judged.lost.append(f"{title} was not measured again: the time budget was spent")


def _measure_again(
    judged: _Judged, plan: Plan, again: Plan, state: State, measurer: Measurer
) -> None:
    request, title = judged.request, again.duels[0].title
    _reuse_environments(plan, again, state)
    try:
        measurer.measure(again, f"{title} of {request.framework} {request.new}, again")
    except CampaignIncompleteError as error:
        judged.lost.append(f"{title}: {error}")  # the completed starts can still be judged
    judged.campaigns.append(again.campaign)


def _conclude(judged: _Judged, plan: Plan, state: State, engine: Engine) -> ReleaseVerdict:
    request = judged.request
    rows = _merge(judged.first, list_certificates(engine, campaigns=judged.campaigns))
    return ReleaseVerdict(
        request=request,
        rows=rows,
        differences=_read_differences(plan, request, rows, state),
        lost=judged.lost,
        trends=list_trends(engine, request.framework, request.new),
        operations=list_measured(list_answers(engine), plan.campaign),
        largest=_find_largest(plan, request, rows),
    )


def _list_changed(rows: Sequence[_Row]) -> list[_Row]:
    return [row for row in rows if row["certificate"] in CHANGED]


def _find_largest(plan: Plan, request: ReleaseRequest, rows: Sequence[_Row]) -> BisectTarget | None:
    duels = find_duels(plan, request)
    for row in _list_changed(rows):
        if key_of(row) not in duels:
            continue
        duel = plan.duels[duels[key_of(row)]]
        arm = find_contender(duel, row["a_arm"], request)
        return BisectTarget(
            framework=parse_request(arm.release).named,
            good=request.old,
            bad=request.new,
            workload=duel.workload,
            case=duel.case,
            settings=list_own_settings(request.framework, arm.settings),
            metric=row["metric"],
            device=duel.device,
            site=plan.site,
        )
    return None


def _choose(rows: Sequence[_Row], request: ReleaseRequest) -> list[_Row]:
    """The release's certificates among those of its campaign, which may measure other versions."""
    pair = (request.new, request.old)
    return [row for row in rows if (row["a_version"], row["b_version"]) == pair]


def _order(plan: Plan, judged: Sequence[_Judged]) -> list[tuple[_Judged, int]]:
    """The numbers of the duels to measure again: first those whose step time seems to have changed
    by its bound or more, then the largest change, relative to its bound."""
    found = list[tuple[tuple[bool, float], _Judged, int]]()
    for each in judged:
        duels = find_duels(plan, each.request)
        sizes = defaultdict[int, list[tuple[bool, float]]](list)
        for row in each.first:
            size = _size(row)
            if key_of(row) in duels:
                sizes[duels[key_of(row)]].append((row["metric"] == STEP_TIME and size >= 1, size))
        for number, of_duel in sizes.items():
            size = max(size for _, size in of_duel)
            if size >= 1 or not each.request.only_suspected:
                found.append(((any(step for step, _ in of_duel), size), each, number))
    found.sort(key=lambda each: each[0], reverse=True)
    return [(each, number) for _, each, number in found]


def _size(row: _Row) -> float:
    """The change in units of the bound of its metric; 0 = it has no value."""
    if row["change"] is None:
        return 0.0
    return abs(math.log1p(row["change"])) / math.log1p(row["bound"])


def _reuse_environments(plan: Plan, again: Plan, state: State) -> None:
    """Measure the environments of the campaign, not newly built ones."""
    known = {request: load_environment(plan, request, state) for request in again.releases}
    built = {
        request: each for request, each in known.items() if isinstance(each, EnvironmentRecord)
    }
    store_environments(again, built, state)


def _merge(first: Sequence[_Row], again: Sequence[_Row]) -> list[_Row]:
    """The fresh starts' certificates, and of what has none the campaign's. Changes come first, step
    times before other metrics, then the largest.

    A campaign is one sample of the machine's state: by itself it shows no change.
    """
    fresh = {_key(row) for row in again}
    rows = [{**row, "again": True} for row in again]
    rows += [{**_doubt(row), "again": False} for row in first if _key(row) not in fresh]
    return sorted(rows, key=_rank)


def _rank(row: _Row) -> tuple[bool, bool, float]:
    return (row["certificate"] not in CHANGED, row["metric"] != STEP_TIME, -_size(row))


def _key(row: _Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _OF_ROW)


def _doubt(row: _Row) -> _Row:
    if row["certificate"] not in CHANGED:
        return row
    reason = "seems to have changed, but was not measured again in fresh starts"
    return {**row, "certificate": "not shown", "reason": reason}


def _read_differences(
    plan: Plan, request: ReleaseRequest, rows: Sequence[_Row], state: State
) -> list[dict[str, Any]]:
    """What differs between both versions in the duel of the largest change, or else in the first
    one that has both."""
    numbers = find_duels(plan, request)
    largest = _list_changed(rows)[:1]
    changed = [numbers.get(key_of(row)) for row in largest]
    arm = largest[0]["a_arm"] if largest else ""
    for number in sorted(range(len(plan.duels)), key=lambda number: number not in changed):
        duel = plan.duels[number]
        path = result_path(state, plan.campaign, duel.duel_run)
        sides = find_sides(read_document(path), request, arm) if path.exists() else None
        if sides is not None:
            return [
                {"kind": each["kind"], "name": each["name"], "old": each["a"], "new": each["b"]}
                for each in list_differences(*sides)
                if each["kind"] in _DIFFERENCES
            ]
    return []


def find_sides(
    document: Mapping[str, Any], request: ReleaseRequest, arm: str
) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The old and the new version's contenders in a duel, of this arm if it has both, else of the
    first one that has; None = there is none."""
    of_arms = defaultdict[str, dict[str, Mapping[str, Any]]](dict)
    for each in document["contenders"]:
        if each["framework"] == request.framework and each["status"] == "ok":
            of_arms[each["arm"]].setdefault(each["version"], each)
    for name in sorted(of_arms, key=lambda each: each != arm):
        if {request.old, request.new} <= of_arms[name].keys():
            return of_arms[name][request.old], of_arms[name][request.new]
    return None

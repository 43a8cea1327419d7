"""The duels of a search in one campaign: what a `TuneRequest` means, and what a duel showed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import Release, parse_request, resolve
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.experiments.compare import MIN_STARTS
from benchcore.experiments.rounds import Measurer
from benchcore.names import format_percent
from benchcore.planning.catalog import load_spec
from benchcore.planning.matrix import Plan, PlannedDuel, check_profile, make_plan
from benchcore.planning.profiles import Match, Profile, list_sentinels
from benchcore.planning.requests import CaseFilter, Placement
from benchcore.planning.tracks import Arm
from benchcore.planning.tuning.fair_settings import Candidate
from benchcore.planning.tuning.tuned import Tried
from benchcore.protocol import METHOD, DuelLimits
from benchcore.running.duel_process import result_path
from benchcore.running.plans import campaign_folder, load_campaign
from benchcore.running.sites import load_site
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.duels import read_duels
from benchcore.store.incoming.documents import read_document
from benchcore.store.reports.campaign import list_ratios
from benchcore.verdict.samples import swap_factors

_SEED = 20261101
_PROFILE = "tune"


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """What to search, and for how long."""

    workload: str
    case_filter: CaseFilter
    jax: str = "jax"
    torch: str = "torch"
    starts: int = MIN_STARTS
    rounds: int = 10
    candidates: int = 16
    """The most duels of one side, besides the last one."""
    budget_s: float = 3600.0
    """No further candidates are measured after this long."""
    gain: float = 0.01
    """A change wins if its interval excludes a smaller gain: 0.01 is 1 %."""
    device: str = "cpu"


@dataclass(kw_only=True)
class TuneRounds:
    """Measures duels in one campaign, which grows; measured ones are not measured again."""

    request: TuneRequest
    case: str
    releases: Mapping[str, Release]
    placement: Placement
    campaign: str
    state: State
    measurer: Measurer
    plan: Plan

    def measure(
        self, pairs: Sequence[tuple[Arm, Arm]], title: str, *, attempt: int = 0
    ) -> list[PlannedDuel]:
        """The duels of these pairs, measured as far as that succeeded. No attempt shares a
        start with another one of the same arms."""
        request = self.request
        limits = DuelLimits().exactly(starts=request.starts, rounds=request.rounds)
        # Each start compiles with empty caches: a setting must win over several compilations.
        limits = dataclasses.replace(
            limits, compilations=request.starts, budget_s=0.0, passes=False
        )
        matches = tuple(
            Match(
                workload=request.workload,
                case=self.case,
                arms=arms,
                expected_s=10.0 * request.starts,
                limits=limits,
            )
            for arms in pairs
        )
        drafted = (matches, self.releases, self.placement, self.campaign)
        added = _draft(request, *drafted, attempt=attempt)
        self.plan = _add_duels(self.plan, added.duels)
        if self._list_missing():
            try:
                self.measurer.measure(self.plan, title)
            except CampaignIncompleteError as error:  # such a candidate loses
                self.measurer.report(f"not all of it was measured: {error}")
        return list(added.duels)

    def _list_missing(self) -> list[PlannedDuel]:
        records = read_duels(open_database(self.state.database_url), self.campaign)
        done = {each.duel_run for each in records if each.checked}
        return [each for each in self.plan.duels if each.duel_run not in done]

    def judge(self, duel: PlannedDuel, candidate: Candidate, least_gain: float) -> Tried:
        """Whether the candidate, the duel's second contender, beats the first by that gain."""
        rows = list_ratios(open_database(self.state.database_url), self.campaign)
        row = next((each for each in rows if each["duel_run"] == duel.duel_run), None)
        failure = self._find_failure(duel)
        measured = row is not None and failure is None
        factors = [row[key] if row and measured else None for key in ("speedup", "low", "high")]
        speedup, low, high = swap_factors(*factors)
        counts = bool(row and measured and row["counts"])
        won = counts and low is not None and low > 1 + least_gain
        reason = failure or (row["reason"] if row else "it has no ratio")
        if counts and low is not None and high is not None:
            reason = name_outcome(low, high, least_gain)
        return Tried(
            change=candidate.change,
            against=candidate.best,
            settings=candidate.settings,
            won=won,
            undecided=measured and low is None,
            reason=reason,
            speedup=speedup,
            low=low,
            high=high,
            num_starts=row["num_starts"] if row and measured else 0,
            duel_run=duel.duel_run,
        )

    def read(self, duel: PlannedDuel) -> dict[str, Any] | None:
        """The duel's document; None = it left none."""
        path = result_path(self.state, self.campaign, duel.duel_run)
        return read_document(path) if path.exists() else None

    def _find_failure(self, duel: PlannedDuel) -> str | None:
        """Why the duel shows nothing: a side that did not end well, also under a workaround."""
        document = self.read(duel)
        if document is None:
            return "the duel left no result"
        for side in document["contenders"]:
            if side["status"] != "ok":
                reason = (side["failure"] or {}).get("reason", "it needs a workaround flag")
                return f"{side['name']}: {side['status']}: {reason}"
        return None


def name_outcome(low: float, high: float, least_gain: float) -> str:
    """What the interval of a speedup says of a change."""
    if low > 1 + least_gain:
        return "faster"
    if high < 1:
        return "slower"
    return f"a gain of {format_percent(least_gain, 1)} is not shown" if least_gain else "no gain"


def _draft(
    request: TuneRequest,
    matches: tuple[Match, ...],
    releases: Mapping[str, Release],
    placement: Placement,
    campaign: str,
    *,
    attempt: int = 0,
) -> Plan:
    profile = Profile(name=_PROFILE, matches=matches, device=request.device, seed=_SEED + attempt)
    check_profile(profile)
    plan = make_plan(profile, releases, campaign=campaign, site=load_site(placement.site).name)
    return dataclasses.replace(plan, pool=placement.pool)


def _add_duels(plan: Plan, duels: Sequence[PlannedDuel]) -> Plan:
    known = {each.duel_run for each in plan.duels}
    added = {each.duel_run: each for each in duels if each.duel_run not in known}
    return dataclasses.replace(plan, duels=(*plan.duels, *added.values()))


def begin_rounds(
    request: TuneRequest, case: str, state: State, measurer: Measurer, placement: Placement
) -> TuneRounds:
    """The rounds, with the plan of an earlier search that the same request began, or a plan that
    only measures the ceilings. Raises UserError."""
    interpreters = find_interpreters()
    releases = {
        text: resolve(parse_request(text), interpreters, python=placement.python)
        for text in (request.jax, request.torch)
    }
    campaign = placement.campaign or _name_campaign(request, case, releases)
    precision = load_spec(request.workload).cases[case].precision
    plain = (
        Arm(name="jax-jit", request=request.jax, settings={"compile": "jit"}),
        Arm(name="torch-eager", request=request.torch, settings={"compile": "none"}),
    )
    own = (request.workload, case)
    ceilings = list_sentinels(request.device, precision, plain, DuelLimits(), besides=own)
    plan = _draft(request, ceilings, releases, placement, campaign)
    if (campaign_folder(state, campaign) / "plan.json").exists():
        plan = _resume(load_campaign(state, campaign), plan)
    return TuneRounds(
        request=request,
        case=case,
        releases=releases,
        placement=placement,
        campaign=campaign,
        state=state,
        measurer=measurer,
        plan=plan,
    )


def _name_campaign(request: TuneRequest, case: str, releases: Mapping[str, Release]) -> str:
    """The campaign's name. The same search of the same versions has the same name, and so
    resumes."""
    versions = {text: (each.version, each.python_version) for text, each in releases.items()}
    measured = (METHOD, request.device, request.starts, request.rounds, case, versions)
    digest = hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()[:10]
    return f"tune-{request.workload}-{digest}".replace("_", "-")


def _resume(saved: Plan, plan: Plan) -> Plan:
    """Raises UserError for a campaign of something else. What a release has beside what is measured
    may change: hints, and where its Python is."""
    is_same = _list_measured(saved.releases) == _list_measured(plan.releases)
    if not is_same or (saved.profile, saved.site) != (plan.profile, plan.site):
        raise UserError(
            f"wanted a search of the same versions in campaign {saved.campaign!r}, but it was "
            f"planned as {saved.profile!r} on {saved.site!r} with "
            f"{', '.join(f'{each.framework} {each.version}' for each in saved.releases.values())}; "
            "choose another name with --campaign"
        )
    # In the saved order, by which environments are numbered.
    releases = {text: plan.releases[text] for text in saved.releases}
    saved = dataclasses.replace(saved, releases=releases, pool=plan.pool or saved.pool)
    return _add_duels(saved, plan.duels)


def _list_measured(releases: Mapping[str, Release]) -> dict[str, tuple[object, ...]]:
    return {
        text: (each.framework, each.version, each.python_version, each.extras)
        for text, each in releases.items()
    }

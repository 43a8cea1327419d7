"""Makes a campaign's plan with today's versions, saves it, and loads it again on a rerun."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchcore.cell.measure.host import describe_device
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import Release, parse_request, resolve
from benchcore.errors import DamagedFileError, UserError
from benchcore.planning import checkpoints, matrix
from benchcore.planning.budgets import EarlierDuels, share_budgets
from benchcore.planning.calibration_runs import add_calibration_starts, number_tonight
from benchcore.planning.catalog import check_case, load_spec
from benchcore.planning.hours import fit_hours
from benchcore.planning.matrix import NightRequest, Plan, PlannedDuel
from benchcore.planning.profiles import PROFILES, Match, Profile
from benchcore.planning.requests import Placement, parse_arm
from benchcore.planning.tracks import TUNED_TRACK
from benchcore.planning.tuning.tuned import use_tuned
from benchcore.protocol import SCHEMA, DuelLimits
from benchcore.running.progress import ProgressLog
from benchcore.running.sites import check_site, load_site
from benchcore.state import State
from benchcore.store.incoming.packs import unpack
from benchcore.verdict.duel.physics import SENTINELS

if TYPE_CHECKING:
    from benchcore.store.database import Engine

_EXPECTED_S = 60.0


def campaign_folder(state: State, campaign: str) -> Path:
    """The folder of a campaign's plan, environments, logs and progress; created if missing."""
    matrix.check_campaign_name(campaign)
    folder = state.campaigns / campaign
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def is_planned(state: State, campaign: str) -> bool:
    """Whether the campaign has a saved plan, which a run that is started again resumes."""
    return (campaign_folder(state, campaign) / "plan.json").exists()


def progress_log(state: State, campaign: str) -> ProgressLog:
    """The campaign's progress log."""
    return ProgressLog(campaign_folder(state, campaign) / "progress.jsonl")


def load_campaign(state: State, campaign: str) -> Plan:
    """The plan of a campaign. Raises UserError if there is none."""
    matrix.check_campaign_name(campaign)
    path = state.campaigns / campaign / "plan.json"
    if not path.exists():
        known = sorted(p.parent.name for p in state.campaigns.glob("*/plan.json"))
        raise UserError(
            f"no campaign {campaign!r} in {str(state.root)!r}; campaigns are "
            f"{', '.join(known) or 'none yet'}; start one with `deadheat nightly`"
        )
    return _load_saved(path)


def load_plan_or_empty(state: State, campaign: str) -> Plan:
    """The plan of a campaign; an empty one where only its documents are left. Raises as
    `load_campaign`."""
    matrix.check_campaign_name(campaign)
    unpack(state.spool / campaign)
    if (state.campaigns / campaign / "plan.json").exists() or not any(
        (state.spool / campaign).glob("*.json")
    ):
        return load_campaign(state, campaign)
    note = "the plan is lost, so this page shows what was measured, not what was planned"
    empty: dict[str, Any] = {"releases": {}, "duels": (), "notes": (note,)}
    return Plan(schema=SCHEMA, campaign=campaign, profile="unknown", site="local", **empty)


def _load_saved(path: Path) -> Plan:
    """A plan that we saved. Raises DamagedFileError if it can't be read."""
    now = path.stat()
    return _read_saved(path, (now.st_ino, now.st_mtime_ns, now.st_size))


@functools.lru_cache(maxsize=2)
def _read_saved(path: Path, version: tuple[int, ...]) -> Plan:
    """The saved plan. Cached per version of the file, as every duel of a campaign loads it."""
    try:
        return matrix.load_plan(path)
    except UserError as error:
        raise DamagedFileError(
            f"the saved plan {str(path)!r} is damaged ({error}); remove this file and rerun the "
            "same command, which plans again. Finished measurements are stored"
        ) from error


def save_campaign(plan: Plan, state: State, pool: str | None = None) -> Plan:
    """Save a plan that will be measured, in a pool of its site; the plan with that pool.

    Raises UserError for an unknown site or pool, for a plan without duels, and where the weights of
    a duel are missing.
    """
    check_site(plan.site, pool)
    if not plan.duels:
        raise UserError(
            f"wanted a plan with duels, got {plan.campaign!r} without one; write one with "
            "`deadheat plan --json`"
        )
    plan = dataclasses.replace(plan, pool=pool or plan.pool)
    for checkpoint in {duel.checkpoint for duel in plan.duels} - {None}:
        checkpoints.find_weights(state, str(checkpoint))
    matrix.save_plan(plan, campaign_folder(state, plan.campaign) / "plan.json")
    return plan


def plan_campaign(
    profile: Profile,
    placement: Placement,
    state: State,
    *,
    hours: float | None = None,
    night: date | None = None,
) -> Plan:
    """The plan of a night (default: the UTC date): the saved one, else a new one with today's
    versions and the calibration runs of that date, fitted into `hours`, which is then saved.

    Raises UserError if the saved plan has another profile, site or pool, or was made for other
    hours or another Python. None of pool, hours and Python means the saved plan's.
    """
    path = (
        campaign_folder(state, placement.campaign or name_night(profile.name, night)) / "plan.json"
    )
    if path.exists():
        plan = _load_saved(path)
        _check_same_request(plan, profile, placement, hours)
        return plan
    plan = draft_night(profile, placement, state, hours=hours, night=night)
    plan = dataclasses.replace(
        plan,
        pool=placement.pool,
        duels=_add_earlier_passes(plan, state),
        request=NightRequest(hours=hours, python=placement.python),
    )
    matrix.save_plan(plan, path)
    return plan


def _check_same_request(
    plan: Plan, profile: Profile, placement: Placement, hours: float | None
) -> None:
    planned = (plan.profile, plan.site, plan.pool)
    if planned != (profile.name, load_site(placement.site).name, placement.pool or plan.pool):
        raise UserError(
            f"campaign {plan.campaign!r} was planned for profile {plan.profile!r} on site "
            f"{plan.site!r} (pool {plan.pool!r}), got {profile.name!r} on {placement.site!r} (pool "
            f"{placement.pool!r}); choose another name with --campaign"
        )
    if plan.request is None:  # saved before requests were
        return
    given = NightRequest(hours=hours, python=placement.python)
    planned, wanted = _list_options(plan.request), _list_options(given)
    for option, value in wanted.items():
        if planned.get(option) != value:
            was = f"with {option} {planned[option]}" if option in planned else f"without {option}"
            raise UserError(
                f"campaign {plan.campaign!r} was planned {was}, got {option} {value}; leave "
                f"{option} out to resume it, or choose another name with --campaign"
            )


def _list_options(request: NightRequest) -> dict[str, str]:
    """The given options of a request, as people write them."""
    hours = {} if request.hours is None else {"--hours": f"{request.hours:g}"}
    return hours if request.python is None else {**hours, "--python": request.python}


def name_night(profile: str, night: date | None = None) -> str:
    """The name of a night's campaign (default: the UTC date's): a second run resumes it."""
    return f"nightly-{profile}-{(night or today()).isoformat()}"


Kind = Literal["nightly", "release", "ad-hoc"]
_OF_VERSIONS = ("release", "backfill", "history")
"""Profiles of given versions."""
_OF_NIGHTS = {*PROFILES, "demo", ""} - {"smoke", "ci"}
"""Profiles of nights; "" = the plan is gone. `smoke` and `ci` only show that a site works."""


def name_kind(campaign: str, profile: str) -> Kind:
    """`release` for new or past versions, `nightly` for what `deadheat nightly` named, and `ad-hoc`
    for all else, whatever its profile measures."""
    if profile in _OF_VERSIONS or campaign.startswith("backfill-"):
        return "release"
    is_night = campaign.startswith("nightly-") and profile in _OF_NIGHTS
    return "nightly" if is_night else "ad-hoc"


def today() -> date:
    """The UTC date, which names a night that no schedule starts."""
    return datetime.now(UTC).date()


def draft_night(
    profile: Profile,
    placement: Placement,
    state: State,
    *,
    hours: float | None = None,
    night: date | None = None,
) -> Plan:
    """The plan of a night as `plan_campaign` makes it, not saved: its duels share their time by the
    spread of earlier nights. Its notes name the duels that are left out: tuned ones without known
    best settings, and those for which `hours` are too few."""
    plan = draft_plan(
        profile,
        site=placement.site,
        campaign=placement.campaign or name_night(profile.name, night),
        state=state,
        python=placement.python,
        calibration=number_tonight(profile, night or today()),
    )
    if hours is not None:
        plan = fit_hours(plan, hours, expect_durations(state, plan.site))
    return share_budgets(plan, _find_earlier(state, plan.site))


def _add_earlier_passes(plan: Plan, state: State) -> tuple[PlannedDuel, ...]:
    """The duels of a plan with the passes of the last week, which may still hold."""
    from benchcore.store.earlier.passes import read_earlier_passes  # SQLAlchemy, as below

    engine = open_existing(state)
    if engine is None:
        return plan.duels
    known = read_earlier_passes(engine, [each.hash for each in plan.duels], datetime.now(UTC))
    return tuple(
        dataclasses.replace(each, earlier_passes=known.get(each.hash, ())) for each in plan.duels
    )


def expect_durations(state: State, site: str) -> Callable[[PlannedDuel], float]:
    """How many seconds a duel took on earlier nights; the plan's guess before there are any."""
    from benchcore.store.earlier.nights import describe_kind, read_durations

    engine = open_existing(state)
    if engine is None:
        return lambda duel: duel.expected_s
    known = read_durations(engine, site)
    return lambda duel: known.get(describe_kind(duel), duel.expected_s)


def _find_earlier(state: State, site: str) -> Callable[[PlannedDuel], EarlierDuels | None]:
    """What earlier nights on this site show of a duel; None = too little."""
    from benchcore.store.earlier.nights import describe_kind, read_earlier_duels

    engine = open_existing(state)
    if engine is None:
        return lambda duel: None
    known = read_earlier_duels(engine, site)
    return lambda duel: known.get(describe_kind(duel))


def open_existing(state: State) -> Engine | None:
    """The database, unless nothing has been stored yet."""
    # `plan` does without SQLAlchemy, whose import takes 0.5 s.
    from benchcore.store.database import database_file, open_database

    file = database_file(state.database_url)
    return None if file is not None and not file.exists() else open_database(state.database_url)


def draft_plan(
    profile: Profile,
    *,
    site: str,
    campaign: str,
    state: State | None = None,
    python: str | None = None,
    calibration: Sequence[int] = (),
) -> Plan:
    """A plan with today's versions and the calibration runs of these numbers, not saved. The state
    folder has the settings of the tuned track; without one, tuned duels are left out, too."""
    matches = (*profile.matches, *(profile.calibration_matches if calibration else ()))
    whole = dataclasses.replace(profile, matches=matches)
    matrix.check_profile(whole)  # before any query of the package index
    interpreters = find_interpreters()
    requests = {text: parse_request(text) for text in matrix.list_requests(whole)}
    with ThreadPoolExecutor() as pool:  # each queries the package index some ten times
        found = pool.map(
            lambda request: resolve(request, interpreters, python=python), requests.values()
        )
        releases = dict(zip(requests, found, strict=True))
    profile, notes = _tune(profile, releases, site, state)
    plan = matrix.make_plan(profile, releases, campaign=campaign, site=load_site(site).name)
    plan = dataclasses.replace(plan, notes=(*plan.notes, *notes))
    return add_calibration_starts(plan, profile, calibration)


def _tune(
    profile: Profile, releases: Mapping[str, Release], site: str, state: State | None
) -> tuple[Profile, list[str]]:
    """The profile with its tuned duels' settings, and notes of them and of those left out. Raises
    UserError if no duel of the profile but ceilings is left."""
    tuned = [match for match in profile.matches if match.track == TUNED_TRACK]
    if not tuned or state is None:
        kept = tuple(match for match in profile.matches if match not in tuned)
        unknown = f"left out: {len(tuned)} tuned duels: no state folder has their settings"
        return dataclasses.replace(profile, matches=kept), [unknown] if tuned else []
    here = load_site(site).kind == "local"
    fingerprint = describe_device(profile.device)["fingerprint"] if here else None
    found, notes, missing = use_tuned(profile, releases, state, fingerprint)
    if missing and not any(match.workload not in SENTINELS for match in found.matches):
        raise UserError(missing[0])
    return found, [*notes, *(f"left out: {each}" for each in missing)]


def draft_named(
    profile: Profile, stem: str, placement: Placement, state: State | None = None
) -> Plan:
    """`draft_plan` for a user's request: without a name its campaign is named after `stem` and
    the time."""
    name = placement.campaign or f"{stem}-{datetime.now(UTC):%Y%m%dt%H%M%S%f}"
    return draft_plan(
        profile,
        site=placement.site,
        campaign=name.replace("_", "-"),
        state=state,
        python=placement.python,
    )


@dataclass(frozen=True, kw_only=True)
class AdhocDuel:
    """A duel that a user names. A contender is a version request with settings after commas:
    `torch==2.15.0,compile=none`."""

    workload: str
    case: str | None
    contenders: Sequence[str]
    starts: int = 3
    compilations: int = 3
    device: str = "cpu"


def draft_duel(request: AdhocDuel, placement: Placement) -> Plan:
    """The plan of one duel with today's versions. Raises UserError."""
    workload, case = request.workload, request.case
    cases = load_spec(workload).cases
    if case is None:
        raise UserError(
            f"wanted a case of {workload!r}, got none; cases are {', '.join(cases)}; "
            "choose one with --case"
        )
    check_case(workload, case)
    if not request.contenders:
        raise UserError(
            "wanted contenders, got none; add two, such as --contender jax --contender torch"
        )
    arms = tuple(parse_arm(text) for text in request.contenders)
    match = Match(workload=workload, case=case, arms=arms, expected_s=_EXPECTED_S)
    limits = DuelLimits(starts=request.starts, compilations=request.compilations)
    profile = Profile(name="adhoc", matches=(match,), limits=limits, device=request.device)
    return draft_named(profile, f"run-{workload}", placement)

"""The first steps of a campaign: plan, provision, measure. Each can be run again at any time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path

from benchcore import checkpoints, matrix
from benchcore.calibration import add_trials, number_tonight
from benchcore.cell import gpu
from benchcore.environments import Accelerator, provision
from benchcore.errors import EnvironmentBuildError, UserError
from benchcore.interpreters import find_interpreters
from benchcore.matrix import Plan, PlannedDuel
from benchcore.profiles import Profile
from benchcore.progress import ProgressLog
from benchcore.protocol import EnvironmentRecord, SlurmJob, write_json
from benchcore.releases import Release, parse_request, resolve
from benchcore.shard import result_path, run_duel
from benchcore.sites import load_site
from benchcore.snapshot import hash_inside, take_snapshot
from benchcore.state import State


def name_night(profile: str) -> str:
    """The campaign of tonight, by the UTC date: running it again resumes it."""
    return f"nightly-{profile}-{today().isoformat()}"


def today() -> date:
    """The UTC date, which nights go by."""
    return datetime.now(UTC).date()


def campaign_folder(state: State, campaign: str) -> Path:
    """Where a campaign's plan, environments, logs and progress are; made if missing."""
    matrix.check_campaign(campaign)
    folder = state.campaigns / campaign
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def progress_log(state: State, campaign: str) -> ProgressLog:
    """Where a campaign tells what it is doing."""
    return ProgressLog(campaign_folder(state, campaign) / "progress.jsonl")


def load_campaign(state: State, campaign: str) -> Plan:
    """The plan of a campaign. Raises UserError if there is none."""
    matrix.check_campaign(campaign)
    path = state.campaigns / campaign / "plan.json"
    if not path.exists():
        known = sorted(p.parent.name for p in state.campaigns.glob("*/plan.json"))
        raise UserError(
            f"no campaign {campaign!r} in {str(state.root)!r}; campaigns are "
            f"{', '.join(known) or 'none yet'}; `deadheat nightly` makes one"
        )
    return matrix.load_plan(path)


def plan_campaign(
    profile: Profile,
    *,
    site: str,
    campaign: str,
    state: State,
    python: str | None = None,
    pool: str | None = None,
) -> Plan:
    """The plan of a night: the one it began with if it has one, else with today's versions, and
    with tonight's share of the trials of our verdicts.

    `python` names the interpreter version of every environment, such as '3.12', and `pool` a pool
    of the site.
    """
    path = campaign_folder(state, campaign) / "plan.json"
    if path.exists():
        plan = matrix.load_plan(path)
        _check_same_request(plan, profile, site, pool)
        return plan
    plan = draft_night(profile, site=site, campaign=campaign, python=python)
    plan = dataclasses.replace(plan, pool=pool)
    matrix.save_plan(plan, path)
    return plan


def _check_same_request(plan: Plan, profile: Profile, site: str, pool: str | None) -> None:
    planned = (plan.profile, plan.site, plan.pool)
    if planned != (profile.name, load_site(site).name, pool or plan.pool):
        raise UserError(
            f"campaign {plan.campaign!r} was planned for profile {plan.profile!r} on site "
            f"{plan.site!r} (pool {plan.pool!r}), and now {profile.name!r} on {site!r} (pool "
            f"{pool!r}) is wanted; "
            "choose another name with --campaign"
        )


def draft_night(profile: Profile, *, site: str, campaign: str, python: str | None = None) -> Plan:
    """The plan of a night, as `plan_campaign` says; nothing is written."""
    trials = number_tonight(profile, today())
    return draft_plan(profile, site=site, campaign=campaign, python=python, trials=trials)


def draft_plan(
    profile: Profile,
    *,
    site: str,
    campaign: str,
    python: str | None = None,
    trials: Sequence[int] = (),
) -> Plan:
    """A plan with today's versions, and with the starts of trials that have these numbers; nothing
    is written."""
    played = (*profile.matches, *(profile.trials if trials else ()))
    whole = dataclasses.replace(profile, matches=played)
    matrix.check_profile(whole)  # before anything is asked of a registry
    interpreters = find_interpreters()
    releases = {
        text: resolve(parse_request(text), interpreters, python=python)
        for text in matrix.list_requests(whole)
    }
    plan = matrix.make_plan(profile, releases, campaign=campaign, site=load_site(site).name)
    return add_trials(plan, profile, trials)


def provision_release(
    plan: Plan, request: str, state: State, report: Callable[[str], None]
) -> EnvironmentRecord:
    """The environment of one of the plan's releases; a campaign keeps the one that it began with.

    Raises EnvironmentBuildError, whose words are kept too: they become the contenders' reason.
    """
    kept, failure = _environment_paths(plan, request, state)
    if kept.exists():
        record = EnvironmentRecord(**json.loads(kept.read_text(encoding="utf-8")))
        if Path(record.python).exists():
            return record
    try:
        record = provision(
            plan.releases[request],
            state,
            accelerator=load_site(plan.site).accelerator or find_accelerator(),
            report=report,
        )
    except EnvironmentBuildError as error:
        write_json(failure, {"reason": str(error)})
        raise
    failure.unlink(missing_ok=True)
    write_json(kept, dataclasses.asdict(record))
    return record


def keep_environment(plan: Plan, request: str, state: State, record: EnvironmentRecord) -> None:
    """Have a campaign begin with an environment that is there already."""
    write_json(_environment_paths(plan, request, state)[0], dataclasses.asdict(record))


def recall_environment(plan: Plan, request: str, state: State) -> EnvironmentRecord | str:
    """What `provision_release` left: the environment, or why there is none."""
    _, failure = _environment_paths(plan, request, state)
    if failure.exists():
        return json.loads(failure.read_text(encoding="utf-8"))["reason"]
    try:
        return provision_release(plan, request, state, lambda text: None)
    except EnvironmentBuildError as error:
        return str(error)


def _environment_paths(plan: Plan, request: str, state: State) -> tuple[Path, Path]:
    """A request's record and its failure; numbered, since a request may hold a path."""
    folder = campaign_folder(state, plan.campaign) / "environments"
    folder.mkdir(exist_ok=True)
    number = list(plan.releases).index(request)
    return folder / f"{number}.json", folder / f"{number}.failure.json"


def find_accelerator() -> Accelerator:
    """`cuda` where NVML shows a GPU, else `cpu`."""
    usable, _ = gpu.survey()
    return "cuda" if usable else "cpu"


def find_duel(plan: Plan, duel_run: str) -> PlannedDuel:
    """A duel of the plan by its id."""
    return next(duel for duel in plan.duels if duel.duel_run == duel_run)


def is_measured(state: State, plan: Plan, duel: PlannedDuel) -> bool:
    """Whether the duel's document lies in the spool already."""
    return result_path(state, plan.campaign, duel.duel_run).exists()


def measure_duel(
    plan: Plan,
    duel: PlannedDuel,
    state: State,
    log: ProgressLog | None = None,
    *,
    slurm: SlurmJob | None = None,
    ends_at: float | None = None,
) -> Path:
    """Measure one duel, unless that was done before; its document in the spool.

    What it is doing goes into the campaign's log, unless another is given. `slurm` is the job
    around it, and `ends_at` when it has to be over. Raises as `benchcore.shard.run_duel` does.
    """
    log = log or progress_log(state, plan.campaign)
    resumed = is_measured(state, plan, duel)
    log.append(event="duel", what="resumed" if resumed else "begun", duel_run=duel.duel_run)
    order = matrix.make_order(
        plan,
        duel,
        {c.release: recall_environment(plan, c.release, state) for c in duel.contenders},
        harness_version=version("deadheat"),
        snapshot=hash_inside(),
        weights=checkpoints.find_weights(state, duel.checkpoint) if duel.checkpoint else None,
    )
    order = dataclasses.replace(order, slurm=slurm)
    path = run_duel(
        order,
        state,
        take_snapshot(state.snapshots),
        lambda event: log.append(**{**event, "duel_run": duel.duel_run}),
        ends_at=ends_at,
    )
    log.append(event="duel", what="done", duel_run=duel.duel_run)
    return path


def describe_release(release: Release) -> str:
    """A release in one line."""
    return f"{release.framework} {release.version} on Python {release.python_version}"

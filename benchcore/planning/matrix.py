"""The plan of a campaign: profile x releases -> duels, each with a stable content hash. Pure."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchcore.cell.document import checkpoint_suffix
from benchcore.device_names import parse_device
from benchcore.environments.version_requests import Release, parse_request
from benchcore.errors import UserError
from benchcore.json_types import from_json
from benchcore.planning.catalog import check_case, check_checkpoint, check_settings, list_sides
from benchcore.planning.plan_values import check_names, check_numbers, check_release
from benchcore.planning.profiles import Profile
from benchcore.planning.tracks import Arm
from benchcore.protocol import (
    METHOD,
    SCHEMA,
    CheckpointOrder,
    ContenderOrder,
    DatasetOrder,
    DuelLimits,
    DuelOrder,
    EarlierPasses,
    EnvironmentRecord,
    check_dataset,
    flatten_limits,
    gather_limits,
    name_case,
    write_json,
)

_CAMPAIGN = re.compile(r"[a-z0-9][a-z0-9_.-]{0,79}")


@dataclass(frozen=True, kw_only=True)
class PlannedContender:
    """A contender with its version fixed; `release` names an entry of the plan's releases."""

    name: str
    arm: str
    release: str
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PlannedDuel:
    """A duel as planned. `hash` identifies what is measured, `duel_run` also the campaign."""

    hash: str
    duel_run: str
    workload: str
    case: str
    track: str
    device: str
    seed: int
    limits: DuelLimits
    expected_s: float
    contenders: tuple[PlannedContender, ...]
    dataset: DatasetOrder | None = None
    """What is trained on: a round is then an epoch."""
    checkpoint: str | None = None
    """SHA-256 of the file whose weights every contender has; None = seeded ones."""
    earlier_passes: tuple[EarlierPasses, ...] = ()
    """Those of the last week, newest first: see `DuelOrder.find_passes`."""

    @property
    def title(self) -> str:
        """Its name for people; the track is named unless it is the default one."""
        on = f" on {self.dataset.name!r}" if self.dataset else ""
        weights = checkpoint_suffix(self.checkpoint) if self.checkpoint else ""
        return name_case(self.workload, f"{self.case}{weights}", self.track) + on


@dataclass(frozen=True, kw_only=True)
class NightRequest:
    """The options that shaped a night's plan; None = the option was not given."""

    hours: float | None
    python: str | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one campaign measures, with every version fixed."""

    schema: int
    campaign: str
    profile: str
    site: str
    releases: dict[str, Release]
    duels: tuple[PlannedDuel, ...]
    notes: tuple[str, ...]
    pool: str | None = None
    """A pool of a Slurm site; None = its default pool."""
    separate_nodes: bool = False
    """Whether each duel is measured in an allocation of its own, on different nodes where a site
    has several, as a confirmation needs."""
    request: NightRequest | None = None
    """None = no night's plan, or one that an older version saved."""


def list_requests(profile: Profile) -> list[str]:
    """Every version request of a profile, once, in the order met."""
    return list(dict.fromkeys(arm.request for match in profile.matches for arm in match.arms))


def make_plan(
    profile: Profile, releases: Mapping[str, Release], *, campaign: str, site: str
) -> Plan:
    """The duels of a campaign. `releases` maps each of `list_requests` to what it resolved to."""
    check_campaign_name(campaign)
    check_profile(profile)
    notes = dict.fromkeys(note for release in releases.values() for note in release.notes)
    return Plan(
        schema=SCHEMA,
        campaign=campaign,
        profile=profile.name,
        site=site,
        releases=dict(releases),
        duels=tuple(
            _plan_duel(profile, number, releases, campaign)
            for number in range(len(profile.matches))
        ),
        notes=tuple(notes),
    )


def check_campaign_name(campaign: str) -> None:
    """Raises UserError for a name that could not be a folder's."""
    if not _CAMPAIGN.fullmatch(campaign) or campaign == "rejected":  # a folder of the spool
        raise UserError(
            f"wanted a campaign name of lower-case letters, digits, '.', '_' and '-' "
            f"(80 at most, the first a letter or digit), got {campaign[:100]!r}; choose another"
        )


def check_profile(profile: Profile) -> None:
    """Raises UserError for a profile that no versions could make measurable."""
    check_device(profile.device)
    for match in profile.matches:
        check_case(match.workload, match.case)
        check_checkpoint(match.workload, match.checkpoint)
        for arm in match.arms:
            check_settings(match.workload, parse_request(arm.request).framework, arm.settings)


def check_device(device: object) -> None:
    """Raises UserError for a name that no device has. Its machine finds out whether it is there."""
    try:
        parse_device(device)
    except ValueError as error:
        raise UserError(f"{error}; choose one with --device") from error


_HASHED_LIMITS = (
    *("starts", "max_starts", "compilations", "rounds", "max_rounds", "target", "budget_s"),
    *("block_ms", "warm_up_limit_s", "freeze"),
)
"""Limits that change what is measured; a time-out does not, nor do additional measurements."""


def _plan_duel(
    profile: Profile, number: int, releases: Mapping[str, Release], campaign: str
) -> PlannedDuel:
    match = profile.matches[number]
    contenders = _name_contenders(match.workload, match.arms, releases)
    content = {
        "workload": match.workload,
        "case": match.case,
        "track": match.track,
        "device": profile.device,
        "seed": profile.seed,
    }
    limits = profile.limits_of(match).fill_in()
    identity = {
        **content,
        **{name: getattr(limits, name) for name in _HASHED_LIMITS},
        "method": METHOD,
        "contenders": [
            {**dataclasses.asdict(c), "python": releases[c.release].python_version}
            for c in contenders
        ],
    }
    if match.checkpoint is not None:  # no key where there is none, so that hashes stay as they were
        identity["checkpoint"] = match.checkpoint
    duel_hash = _hash(identity)
    return PlannedDuel(
        **content,
        checkpoint=match.checkpoint,
        hash=duel_hash,
        duel_run=_hash({"campaign": campaign, "duel": duel_hash}),
        limits=limits,
        expected_s=match.expected_s,
        contenders=contenders,
    )


def train_on(plan: Plan, dataset: DatasetOrder) -> Plan:
    """The plan with its first duel trained on a dataset, whose hash becomes part of the duel's. The
    other duels measure the device's ceilings."""
    duel, *sentinels = plan.duels
    measured = ("sha256", "batch", "side", "mode", "workers")
    named = {key: getattr(dataset, key) for key in measured}
    if dataset.target_accuracy is not None:  # it gives each start its own seed; no key elsewhere
        named["target_accuracy"] = dataset.target_accuracy
    own = _hash({"duel": duel.hash, **named})
    duel_run = _hash({"campaign": plan.campaign, "duel": own})
    trained = dataclasses.replace(duel, dataset=dataset, hash=own, duel_run=duel_run)
    return dataclasses.replace(plan, duels=(trained, *sentinels))


def _name_contenders(
    workload: str, arms: Sequence[Arm], releases: Mapping[str, Release]
) -> tuple[PlannedContender, ...]:
    """Names are the arm and its version. A replicate gets a number, after `.twin`, which stored
    results contain."""
    planned: list[PlannedContender] = []
    for arm in arms:
        release = releases[arm.request]
        if release.framework not in list_sides(workload):
            raise UserError(
                f"wanted {workload!r} in {release.framework}, but it is implemented in "
                f"{', '.join(list_sides(workload))}; choose among these"
            )
        name = f"{arm.name}-{release.version}".lower()
        same = sum(1 for other in planned if other.name.split(".twin")[0] == name)
        planned.append(
            PlannedContender(
                name=f"{name}.twin{same + 1}" if same else name,
                arm=arm.name,
                release=arm.request,
                settings=dict(arm.settings),
            )
        )
    return tuple(planned)


def _hash(content: object) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def make_order(
    plan: Plan,
    duel: PlannedDuel,
    environments: Mapping[str, EnvironmentRecord | str],
    *,
    harness_version: str,
    snapshot: str,
    weights: Path | None = None,
) -> DuelOrder:
    """The order for the conductor. `environments` maps a request to its environment, or to the
    reason why there is none; `weights` are those of the duel's checkpoint, if it has one."""
    checkpoint = None
    if duel.checkpoint is not None:
        assert weights is not None, "a checkpoint's duel never runs on seeded weights"
        checkpoint = CheckpointOrder(sha256=duel.checkpoint, weights=str(weights))
    copied = {
        key: getattr(duel, key)
        for key in (
            *("duel_run", "workload", "case", "track", "device", "seed", "limits"),
            "earlier_passes",
        )
    }
    return DuelOrder(
        schema=SCHEMA,
        method=METHOD,
        campaign=plan.campaign,
        duel_hash=duel.hash,
        harness_version=harness_version,
        snapshot=snapshot,
        site=plan.site,
        # Pillow is where this runs, not where the plan was made.
        dataset=duel.dataset and dataclasses.replace(duel.dataset, loader_python=sys.executable),
        checkpoint=checkpoint,
        contenders=tuple(
            _make_contender_order(plan.releases[c.release], c, environments[c.release])
            for c in duel.contenders
        ),
        **copied,
    )


def _make_contender_order(
    release: Release, planned: PlannedContender, environment: EnvironmentRecord | str
) -> ContenderOrder:
    failure = environment if isinstance(environment, str) else None
    record = environment if isinstance(environment, EnvironmentRecord) else _no_environment(release)
    return ContenderOrder(
        name=planned.name,
        arm=planned.arm,
        role=release.role,
        framework=release.framework,
        version=release.version,
        settings=planned.settings,
        environment=record,
        environment_failure=failure,
    )


def _no_environment(release: Release) -> EnvironmentRecord:
    return EnvironmentRecord(
        name=f"{release.framework}-{release.version}",
        key="none",
        lock_sha256=None,
        python=str(release.python),
        python_version=release.python_version,
        build="failed",
        packages={},
    )


def save_plan(plan: Plan, path: Path) -> None:
    """Write a plan as JSON; `load_plan` reads it back."""
    write_json(path, plan_document(plan))


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan as plain JSON."""
    document = json.loads(json.dumps(dataclasses.asdict(plan), default=str))
    return {**document, "duels": [flatten_limits(duel) for duel in document["duels"]]}


def load_plan(path: Path) -> Plan:
    """Read a plan. Raises UserError when it is not a plan, or one that was changed by hand."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        duels = [gather_limits(duel) for duel in document["duels"]]
        plan = from_json(Plan, {**document, "duels": duels})
        _check_values(plan)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"wanted a plan as JSON in {str(path)!r}, but {type(error).__name__}: {error}; "
            "write one with `deadheat plan --json`"
        ) from error
    _check_plan(plan, path)
    return plan


def _check_values(plan: Plan) -> None:
    """Raises ValueError for what nothing can measure: a person may have written the file."""
    for request, release in plan.releases.items():
        check_release(request, release)
    for duel in plan.duels:
        check_names([each.name for each in duel.contenders], [each.arm for each in duel.contenders])
        check_numbers(duel.limits, seed=duel.seed, expected_s=duel.expected_s)


def _check_plan(plan: Plan, path: Path) -> None:
    check_campaign_name(plan.campaign)
    for duel in plan.duels:
        check_case(duel.workload, duel.case)
        check_device(duel.device)
        if duel.dataset is not None:
            check_dataset(duel.dataset)
        check_checkpoint(duel.workload, duel.checkpoint)
        for each in duel.contenders:
            if each.release not in list(plan.releases):
                raise UserError(
                    f"wanted a release of {str(path)!r} for {each.name!r:.100}, got "
                    f"{each.release!r:.100}; write the plan again with `deadheat plan --json`"
                )
            check_settings(duel.workload, plan.releases[each.release].framework, each.settings)
        if duel.duel_run != _hash({"campaign": plan.campaign, "duel": duel.hash}):
            raise UserError(
                f"wanted the duel {duel.title!r} of {str(path)!r} to have its own hash, got "
                f"{duel.duel_run!r}; write the plan again with `deadheat plan --json`"
            )

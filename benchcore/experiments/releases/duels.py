"""The duels of a release's campaign that measure both versions, and their fresh starts."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchcore.environments.version_requests import Request, parse_request
from benchcore.planning.matrix import Plan, PlannedContender, PlannedDuel, make_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import Arm
from benchcore.store.records import case_of

STARTS = 5
"""Fresh starts of a case, each a duel of its own: one value of every metric."""
_ROUNDS = 6
_Key = tuple[str, str]
"""A duel's title and an arm: duels of one case may compare several strategies, and operations that
are measured in the newest versions may be in the profile, too."""


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest:
    """A release with a planned campaign, and the time for its fresh starts."""

    framework: str
    new: str
    old: str
    campaign: str
    budget_s: float
    """Begin no case after this many seconds."""
    only_suspected: bool = False
    """Whether only those cases are measured again that the campaign shows changed by the bound of a
    metric or more. The others are then not called unchanged."""


def find_duels(plan: Plan, request: ReleaseRequest) -> dict[_Key, int]:
    """The number of the duel that holds both versions of an arm; other duels are left out."""
    found = dict[_Key, int]()
    for number, duel in enumerate(plan.duels):
        versions = defaultdict[str, set[str | None]](set)
        for each in duel.contenders:
            side = parse_request(each.release)
            if _is_of(side, request):
                versions[each.arm].add(side.version)
        for arm, of_arm in versions.items():
            if len(of_arm) == 2:
                found.setdefault((duel.title, arm), number)
    return found


def key_of(row: Mapping[str, Any]) -> _Key:
    """The key under which `find_duels` lists the duel of a certificate."""
    return case_of(row), row["a_arm"]


def find_contender(duel: PlannedDuel, arm: str, request: ReleaseRequest) -> PlannedContender:
    """A version of an arm in a duel of `find_duels`."""
    return next(
        each
        for each in duel.contenders
        if each.arm == arm and _is_of(parse_request(each.release), request)
    )


def draft_fresh_starts(
    plan: Plan, duel: PlannedDuel, request: ReleaseRequest, campaign: str
) -> Plan:
    """The fresh starts of a duel's arms in both versions: each a duel with its own seed, and on a
    Slurm site in its own allocation."""
    sides = [each for each in duel.contenders if _is_of(parse_request(each.release), request)]
    match = Match(
        workload=duel.workload,
        case=duel.case,
        track=duel.track,
        arms=tuple(
            Arm(name=each.arm, request=each.release, settings=each.settings) for each in sides
        ),
        expected_s=20.0 * len(sides),
        limits=dataclasses.replace(
            duel.limits.exactly(starts=1, rounds=_ROUNDS), budget_s=300.0, passes=True
        ),
        checkpoint=duel.checkpoint,
    )
    releases = {each.release: plan.releases[each.release] for each in sides}
    plans = [
        make_plan(
            Profile(name="release", matches=(match,), device=duel.device, seed=duel.seed + number),
            releases,
            campaign=campaign,
            site=plan.site,
        )
        for number in range(1, STARTS + 1)
    ]
    duels = tuple(each.duels[0] for each in plans)
    return dataclasses.replace(plans[0], duels=duels, separate_nodes=True, pool=plan.pool)


def _is_of(side: Request, release: ReleaseRequest) -> bool:
    return side.framework == release.framework and side.version in (release.new, release.old)

"""Profiles with given versions of a framework: each against the others, and all against the other
framework."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from benchcore.environments.version_requests import parse_request
from benchcore.errors import UserError
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import Arm
from benchcore.protocol import DuelLimits


def compare_versions(
    profile: Profile, framework: str, versions: Sequence[str], *, name: str
) -> Profile:
    """The profile with each arm of the framework once per version, the newest first, and more time
    in proportion.

    Sentinels keep the first version: they measure the device. Matches without the framework are
    left out. Raises UserError if none is left."""
    listed = [
        (match, _list_arms(match, framework, versions[:1] if match.sentinel else versions))
        for match in profile.matches
    ]
    matches = [_lengthen(match, profile.limits_of(match), arms) for match, arms in listed if arms]
    if not matches:
        raise UserError(
            f"wanted cases with {framework} in them, but profile {profile.name!r} has none; choose "
            "another profile"
        )
    return dataclasses.replace(profile, name=name, matches=tuple(matches))


def _list_arms(match: Match, framework: str, versions: Sequence[str]) -> tuple[Arm, ...]:
    arms: dict[tuple[str, str], Arm] = {}
    concerned = False
    for arm in match.arms:
        requested = parse_request(arm.request)
        if requested.framework != framework:
            arms[arm.name, arm.request] = arm
            continue
        concerned = True
        for version in versions:
            request = f"{requested.named}=={version}"
            arms.setdefault((arm.name, request), dataclasses.replace(arm, request=request))
    return tuple(arms.values()) if concerned else ()


def _lengthen(match: Match, limits: DuelLimits, arms: tuple[Arm, ...]) -> Match:
    more = len(arms) / len(match.arms)
    limits = dataclasses.replace(limits, budget_s=limits.budget_s * more)
    return dataclasses.replace(match, arms=arms, expected_s=match.expected_s * more, limits=limits)

"""The settings that a search found best for one side of a case on one device, with their evidence:
one JSON document each, in the folder `tuned` of the state folder."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchcore.environments.version_requests import Release
from benchcore.errors import UserError
from benchcore.json_types import from_json
from benchcore.planning.catalog import check_case, check_settings
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.requests import name_arm
from benchcore.planning.tracks import TUNED_TRACK, Arm
from benchcore.protocol import METHOD, name_case, write_json
from benchcore.state import State

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One duel of the search. The factors are how many times as fast the settings are as those that
    they met, with the 95 % interval; None = not measured."""

    change: str
    """`KEY=VALUE`; of the last duel, which repeats the whole gain, `all`."""
    against: Mapping[str, str]
    settings: Mapping[str, str]
    won: bool
    undecided: bool
    """Other processes disturbed too many of its blocks, twice."""
    reason: str
    speedup: float | None
    low: float | None
    high: float | None
    num_starts: int
    duel_run: str


@dataclass(frozen=True, kw_only=True)
class TunedSettings:
    """The winner of a search, and why the others lost."""

    schema: int
    method: int
    workload: str
    case: str
    framework: str
    version: str
    device: Mapping[str, Any]
    """As `benchcore.cell.measure.host.describe_device`."""
    settings: Mapping[str, str]
    campaign: str
    made_at: str
    """UTC, ISO 8601."""
    environment: Mapping[str, Any]
    """Python, lock and packages of the first duel."""
    starts: int
    rounds: int
    least_gain: float
    """An alternative wins if its interval excludes a smaller gain: 0.01 is 1 %."""
    most_candidates: int
    """The budget of duels, the same for both frameworks."""
    ended: str
    """Why the search ended."""
    tried: tuple[Tried, ...]

    @property
    def path_name(self) -> str:
        """The name of its file."""
        return _name_file(
            self.workload, self.case, self.framework, self.version, self.device["fingerprint"]
        )


def _name_file(workload: str, case: str, framework: str, version: str, fingerprint: str) -> str:
    named = f"{workload}-{case}-{framework}-{version}-{fingerprint}"
    return re.sub(r"[^a-z0-9_.+-]", "-", named.lower()) + ".json"


def save_tuned(found: TunedSettings, state: State) -> Path:
    """Write the document, in place of an earlier one of the same side; return its path."""
    state.tuned.mkdir(exist_ok=True)
    path = state.tuned / found.path_name
    write_json(path, dataclasses.asdict(found))
    return path


def load_tuned(path: Path) -> TunedSettings:
    """Read and check a document. Raises UserError for another format, and for settings that the
    workload does not take."""
    try:
        found = from_json(TunedSettings, json.loads(path.read_text(encoding="utf-8")))
        named = found.path_name
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"wanted tuned settings as JSON in {str(path)!r}, but {type(error).__name__}: {error}; "
            "remove the file, and run deadheat tune again"
        ) from error
    if (found.schema, named) != (SCHEMA, path.name):
        raise UserError(
            f"wanted tuned settings of schema {SCHEMA} in a file named {named!r:.200}, got schema "
            f"{found.schema!r:.20} in {str(path)!r}; remove the file, and run deadheat tune again"
        )
    check_case(found.workload, found.case)
    check_settings(found.workload, found.framework, found.settings)
    return found


def find_tuned(
    state: State, workload: str, case: str, framework: str, version: str, fingerprint: str
) -> TunedSettings | None:
    """What was found for this version on this device by the present METHOD; None = nothing.

    Raises UserError for a broken document.
    """
    path = state.tuned / _name_file(workload, case, framework, version, fingerprint)
    found = load_tuned(path) if path.exists() else None
    return found if found is not None and found.method == METHOD else None


def use_tuned(
    profile: Profile, releases: Mapping[str, Release], state: State, fingerprint: str | None
) -> tuple[Profile, list[str], list[str]]:
    """The profile with the settings that were found for its tuned matches; notes of these settings;
    and what is missing, with the command that finds it. Matches that lack some are left out.

    `fingerprint` is the device's; None = another machine measures, so that the settings may be of
    any device of the kind, if all were found on the same one. Raises UserError for a broken
    document.
    """
    matches, notes, missing = list[Match](), list[str](), list[str]()
    for match in profile.matches:
        if match.track != TUNED_TRACK:
            matches.append(match)
            continue
        found = [
            _find_for(match, releases[arm.request], profile.device, state, fingerprint)
            for arm in match.arms
        ]
        known = [each for each in found if each is not None]
        title = name_case(match.workload, match.case, match.track)
        if len(known) < len(found) or len({each.device["fingerprint"] for each in known}) > 1:
            missing.append(f"{title}: {_name_command(match, releases, profile.device)}")
            continue
        arms = zip(match.arms, known, strict=True)
        matches.append(replace(match, arms=tuple(_fill(*each) for each in arms)))
        notes.append(f"{title}: {'; '.join(_describe(each) for each in known)}")
    return replace(profile, matches=tuple(matches)), notes, missing


def _find_for(
    match: Match, release: Release, device: str, state: State, fingerprint: str | None
) -> TunedSettings | None:
    named = (match.workload, match.case, release.framework, release.version)
    if fingerprint is not None:
        return find_tuned(state, *named, fingerprint)
    stem = _name_file(*named, "").removesuffix(".json")
    found = [load_tuned(path) for path in sorted(state.tuned.glob(f"{stem}*.json"))]
    kind = "cpu" if device == "cpu" else "gpu"
    usable = [each for each in found if each.method == METHOD and each.device["kind"] == kind]
    return usable[0] if len(usable) == 1 else None


def _name_command(match: Match, releases: Mapping[str, Release], device: str) -> str:
    versions = [releases[arm.request] for arm in match.arms]
    chosen = " ".join(f"--{each.framework} {each.framework}=={each.version}" for each in versions)
    named = " and ".join(f"{each.framework} {each.version}" for each in versions)
    return (
        f"the best settings of {named} on this device are not known; run `deadheat tune "
        f"{match.workload} --case {match.case} --device {device} {chosen}`"
    )


def _fill(arm: Arm, found: TunedSettings) -> Arm:
    """Named for its settings: if a later search finds others, that is another series."""
    settings = dict(found.settings)
    return Arm(name=name_arm(found.framework, settings), request=arm.request, settings=settings)


def _describe(found: TunedSettings) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in found.settings.items())
    return (
        f"{found.framework} {found.version} runs with {settings}, which campaign {found.campaign} "
        f"found best on {found.device['model']}"
    )

"""Made-up versions for plans that no package index is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchcore.environments.version_requests import Release
from benchcore.planning.matrix import Plan, make_plan
from benchcore.planning.profiles import Profile

RELEASES = {
    f"{framework}{role}": Release(
        framework=framework,  # type: ignore[arg-type]
        version=version,
        role=role.lstrip("@") or "newest",  # type: ignore[arg-type]
        python=Path("/usr/bin/python3"),
        python_version="3.13.0",
        notes=(),
    )
    for framework, role, version in (
        ("stdlib", "", "3.13.0"),
        ("jax", "@newest", "0.12.0"),
        ("jax", "@previous", "0.11.2"),
        ("torch", "@newest", "2.15.0"),
        ("torch", "@previous", "2.14.1"),
    )
}


def make_newest_plan(profile: Profile, campaign: str = "night") -> Plan:
    """A plan of these releases, each with the same note."""
    noted = {text: replace(each, notes=("a note",)) for text, each in RELEASES.items()}
    return make_plan(profile, noted, campaign=campaign, site="local")

"""Versions held back for another package's bugs are free again when that package is fixed."""

from __future__ import annotations

import tomllib
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent
CONSTRAINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"][
    "constraint-dependencies"
]
FIX = "remove it from [tool.uv] constraint-dependencies, run `uv lock`, then all tests"


def test_constraints_for_bugs_of_prefect_38_end_with_it() -> None:
    """Prefect 3.9 or newer has to be tried with the newest of these packages."""
    assert Version(version("prefect")).release[:2] == (3, 8), f"prefect is newer now: {FIX}"


def test_prefect_does_not_hold_back_these_versions_itself() -> None:
    declared = [Requirement(each) for each in requires("prefect") or []]
    for constraint in map(Requirement, CONSTRAINTS):
        (bound,) = constraint.specifier
        refused = [
            each
            for each in declared
            if each.name == constraint.name and not each.specifier.contains(bound.version)
        ]
        assert not refused, f"prefect itself refuses {constraint.name} {bound.version}: {FIX}"

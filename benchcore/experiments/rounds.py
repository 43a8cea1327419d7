"""The rounds of an experiment: the `Measurer` that runs them, their context, and the looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from benchcore.errors import UserError
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import Profile, load_profile
from benchcore.running.sites import check_site
from benchcore.verdict.confirmation.decide import LOOKS

_MAX_STARTS = 100


class Measurer(Protocol):
    """Measures the rounds of an experiment, and shows its progress."""

    def measure(self, plan: Plan, title: str) -> None:
        """Measure a plan, and ingest its results.

        `title` names the round for people: "starts 6 to 8 of suspicion 12". Raises
        CampaignIncompleteError if a duel has no result, and UserError if it can't begin.
        """
        ...

    def report(self, text: str) -> None:
        """Show one line of progress."""
        ...


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Where and how the rounds of an experiment are measured."""

    profile: Profile
    site: str
    python: str | None = None
    """Interpreter version of every environment; None = the newest that each supports."""


def make_context(profile: str, site: str, python: str | None = None) -> RunContext:
    """The context with these names. Raises UserError for a profile or site that can't be used."""
    check_site(site)
    return RunContext(profile=load_profile(profile), site=site, python=python)


def check_looks(starts: Sequence[int] | None) -> tuple[int, ...]:
    """The numbers of starts after which an experiment judges its results; the usual ones if none
    are given.

    Raises UserError unless they increase, from 2 to 100.
    """
    looks = tuple(starts or LOOKS)
    if looks[0] < 2 or looks[-1] > _MAX_STARTS or looks != tuple(sorted(set(looks))):
        raise UserError(
            f"wanted increasing numbers of starts from 2 to {_MAX_STARTS}, got "
            f"{', '.join(map(str, looks))}; write for example --looks 5 --looks 8"
        )
    return looks


def name_starts(starts: range) -> str:
    """`starts 6 to 8`, counted from 1."""
    return f"starts {starts.start + 1} to {starts.stop}"

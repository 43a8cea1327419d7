"""Measure past versions of a framework, those that can be installed here, in one campaign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_index import PastReleases, list_past_releases
from benchcore.environments.version_requests import pick_interpreters
from benchcore.errors import UserError
from benchcore.experiments.rounds import RunContext
from benchcore.planning.release_profile import pit_versions
from benchcore.running.plans import draft_plan, load_campaign, save_campaign
from benchcore.state import State


def find_versions(framework: str, *, below: str | None, count: int) -> PastReleases:
    """The newest versions that can be installed here, before `below` if given. Raises UserError if
    the package index does not answer."""
    interpreters = pick_interpreters(find_interpreters(), None)
    return list_past_releases(framework, interpreters, below=below, count=count)


def list_versions(past: PastReleases) -> list[dict[str, str]]:
    """Every version that was found, as rows of a table: whether it is measured, and why not."""
    rows = [{"version": each, "measured": "yes", "why not": ""} for each in past.found]
    for version, reason in past.skipped.items():
        rows.append({"version": version, "measured": "no", "why not": reason})
    return rows


def plan_backfill(
    framework: str, past: PastReleases, context: RunContext, campaign: str, state: State
) -> None:
    """Plan a campaign of these versions against each other, and of all against the other framework.
    Raises UserError if none can be installed."""
    if not past.found:
        raise UserError(
            f"wanted past versions of {framework}, but none of {len(past.skipped)} can be "
            "installed here; put an older Python on PATH, or run `uv python install`"
        )
    pitted = pit_versions(context.profile, framework, past.found, name="backfill")
    save_campaign(draft_plan(pitted, site=context.site, campaign=campaign, state=state), state)


def describe_measured(
    framework: str, campaign: str, failures: Sequence[Mapping[str, Any]], state: State
) -> str:
    """`jax 0.11.2, 0.11.1`, and the contenders that failed, with their reasons."""
    releases = load_campaign(state, campaign).releases.values()
    measured = ", ".join(each.version for each in releases if each.framework == framework)
    failed = "; ".join(f"{each['case']}, {each['name']}: {each['reason']}" for each in failures)
    return f"{framework} {measured}" + (f": {failed}" if failed else "")

"""Measure past versions of a framework, those that can be installed here, in one campaign, and
judge what each changed against the one before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from packaging.version import InvalidVersion, Version

from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_index import PastReleases, list_past_releases
from benchcore.environments.version_requests import pick_interpreters
from benchcore.errors import UserError
from benchcore.experiments.alerting.alerts import describe_release
from benchcore.experiments.releases.duels import ReleaseRequest
from benchcore.experiments.releases.release import ReleaseVerdict, judge_releases
from benchcore.experiments.rounds import Measurer, RunContext
from benchcore.planning.release_profile import compare_versions
from benchcore.running.plans import draft_plan, load_campaign, save_campaign
from benchcore.state import State
from benchcore.store.records import case_of
from benchcore.store.reports.certificates import CHANGED

CHANGE_COLUMNS = ("version", "before", "case", "arm", "metric", "certificate", "times", "95 %")
"""What a table of changes shows of each."""


def find_versions(framework: str, *, below: str | None, count: int) -> PastReleases:
    """The newest versions that can be installed here, before `below` if given. Raises UserError if
    `below` is not a version, or the package index does not answer."""
    if below is not None:
        try:
            Version(below)
        except InvalidVersion as error:
            raise UserError(
                f"wanted a version such as 0.10.1, got {below[:100]!r}; choose another with --below"
            ) from error
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
            "installed here; raise --below or leave it out, put an older Python on PATH, or run "
            "`uv python install`"
        )
    compared = compare_versions(context.profile, framework, past.found, name="backfill")
    save_campaign(draft_plan(compared, site=context.site, campaign=campaign, state=state), state)


def judge_backfill(
    framework: str, campaign: str, budget_s: float, state: State, measurer: Measurer
) -> list[ReleaseVerdict]:
    """What each version changed against the one before it, newest first.

    Cases that seem to have changed are measured again in fresh starts, the largest changes first,
    and none begun after `budget_s`. Run again, it measures what is missing. Raises UserError.
    """
    requests = [
        ReleaseRequest(
            framework=framework,
            new=new,
            old=old,
            campaign=campaign,
            budget_s=budget_s,
            only_suspected=True,
        )
        for new, old in pairwise(_list_planned(framework, campaign, state))
    ]
    return judge_releases(requests, state, measurer)


def list_changes(verdicts: Sequence[ReleaseVerdict]) -> list[dict[str, Any]]:
    """A row per change that fresh starts showed, as `tabulate_changes`; newest version first."""
    return tabulate_changes([row for each in verdicts for row in each.rows])


def tabulate_changes(certificates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The changes among certificates, as rows of a table (`CHANGE_COLUMNS`): `times` is the newer
    version's amount over the older one's."""
    return [
        {
            "version": row["a_version"],
            "before": row["b_version"],
            "case": case_of(row),
            "arm": row["a_arm"],
            "metric": row["noun"],
            "certificate": row["certificate"],
            "times": f"{row['factors']['ratio']:.3g}",
            "95 %": f"{row['factors']['low']:.3g} to {row['factors']['high']:.3g}",
        }
        for row in certificates
        if row["certificate"] in CHANGED
    ]


def describe_changes(verdicts: Sequence[ReleaseVerdict]) -> list[str]:
    """A sentence per version, and the command that finds the package behind its largest change."""
    lines = list[str]()
    for each in verdicts:
        request = each.request
        lines.append(
            describe_release(request.framework, request.new, request.old, each.rows, each.trends)
        )
        lines += [f"find the package: {found}" for found in [each.search] if found]
    return lines


def _list_planned(framework: str, campaign: str, state: State) -> list[str]:
    """The versions of a framework in a campaign, newest first."""
    releases = load_campaign(state, campaign).releases.values()
    versions = {each.version for each in releases if each.framework == framework}
    return sorted(versions, key=Version, reverse=True)


def describe_measured(
    framework: str, campaign: str, failures: Sequence[Mapping[str, Any]], state: State
) -> str:
    """`jax 0.11.2, 0.11.1`, and the contenders that failed, with their reasons."""
    measured = ", ".join(_list_planned(framework, campaign, state))
    failed = "; ".join(f"{each['case']}, {each['name']}: {each['reason']}" for each in failures)
    return f"{framework} {measured}" + (f": {failed}" if failed else "")

"""What happens when a framework releases: the watch finds it, and its duels are run."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_index import find_previous_release
from benchcore.environments.version_requests import parse_request, pick_interpreters
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.experiments.alerts import describe_release
from benchcore.experiments.release import (
    ReleaseRequest,
    ReleaseVerdict,
    judge_release,
    write_search,
)
from benchcore.planning import matrix
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import load_profile
from benchcore.planning.release_profile import pit_versions
from benchcore.running.plans import campaign_folder, draft_plan, load_campaign
from benchcore.running.sites import check_site
from benchcore.state import State, default_root, open_state
from tasks import release_watch
from tasks.alerts import alert
from tasks.campaign_run import TaskMeasurer, run_campaign
from tasks.form import Attempt, ConfirmMinutes, Framework, ProfileName, PublishedVersion, SiteName

_COLUMNS = (
    "workload",
    "case_name",
    "a_arm",
    "metric",
    "certificate",
    "change",
    "low",
    "high",
    "num_samples",
    "again",
    "reason",
)


@flow(name="watch-releases")
def watch_releases(profile: ProfileName = "laptop", site: SiteName = "local") -> RunState[Any]:
    """Look for new releases, and have each measured once.

    Args:
        profile: Profile whose cases are measured.
        site: Where to measure.
    """
    root = str(open_state(default_root()).root)
    release_watch.find_lost(root)
    found = release_watch.look(root)
    for each in found.pending:
        release_watch.send(each, profile=profile, site=site, root=root)
    news = ", ".join(f"{each.package} {each.version}" for each in found.new) or "nothing new"
    if found.errors:
        return Failed(message=f"{news}; not all could be asked: {'; '.join(found.errors)}")
    return Completed(message=news)


@flow(name="release", flow_run_name="{framework}-{version}", validate_parameters=True)
def release(
    framework: Framework,
    version: PublishedVersion,
    profile: ProfileName = "laptop",
    site: SiteName = "local",
    budget_minutes: ConfirmMinutes = 60,
    attempt: Attempt = 0,
) -> RunState[Any]:
    """Measure a release against the one before it, and both against the other framework; say what
    it changed.

    Args:
        framework: Framework that was released.
        version: Its version, as published.
        profile: Profile whose cases are measured.
        site: Where to measure.
        budget_minutes: Measure each case again in fresh starts; begin none after so many minutes.
        attempt: Number of earlier attempts; each attempt is a campaign of its own.
    """
    state = open_state(default_root())
    root, details, campaign = str(state.root), dict[str, Any](), ""
    try:
        check_site(site)
        campaign = _plan(state, framework, version, profile=profile, site=site, attempt=attempt)
        outcome = run_campaign(campaign, root)
        failure = _describe_failures(outcome["failures"], version)
        found = judge_release(
            ReleaseRequest(
                framework=framework,
                new=_normalise(framework, version),
                old=_find_old(load_campaign(state, campaign), framework, version),
                campaign=campaign,
                budget_s=60 * budget_minutes,
            ),
            state,
            TaskMeasurer(state),
        )
        words = describe_release(framework, version, found.request.old, found.rows, found.trends)
        details = _list_details(found, state.link_page(campaign))
        _publish(found, words)
    except (UserError, CampaignIncompleteError) as error:
        failure, words = str(error), ""
    if failure:
        words = f"{framework} {version} failed: {failure}" + (f". {words}" if words else "")
    payload = {"text": words, **details}
    release_watch.settle(framework, version, failure=failure, root=root, details=payload)
    key = f"release-{framework}-{version}-{attempt}"
    named = {"framework": framework, "version": version, **details}
    alert(key, words, named, root, campaign=campaign if details else None)
    return Failed(message=words) if failure else Completed(message=words)


def _publish(found: ReleaseVerdict, words: str) -> None:
    """The verdict as a table on the run's page; the artifacts of releases are versions of one."""
    table = [{name: row[name] for name in _COLUMNS} for row in found.rows]
    if table:
        create_table_artifact(
            key=f"release-{found.request.framework}", table=table, description=words
        )


def _list_details(found: ReleaseVerdict, dashboard: str) -> dict[str, Any]:
    """What the alert and the event hold beside the sentence."""
    return {
        "previous": found.request.old,
        "dashboard": dashboard,
        "certificates": [{name: row[name] for name in _COLUMNS} for row in found.rows],
        "trends": found.trends,
        "differences": found.differences,
        "lost": found.lost,
        "search": write_search(found),
    }


def _plan(
    state: State, framework: str, version: str, *, profile: str, site: str, attempt: int
) -> str:
    """The campaign of one attempt at a release. A run that is started again resumes it."""
    new = _normalise(framework, version)
    name = f"release-{framework}-{new}-{attempt}".replace("+", "-")
    path = campaign_folder(state, name) / "plan.json"
    if not path.exists():
        old = find_previous_release(framework, new, pick_interpreters(find_interpreters(), None))
        pitted = pit_versions(load_profile(profile), framework, (new, old), name="release")
        matrix.save_plan(draft_plan(pitted, site=site, campaign=name, state=state), path)
    return name


def _normalise(framework: str, version: str) -> str:
    """The version as requests and plans write it."""
    return str(parse_request(f"{framework}=={version}").version)


def _find_old(plan: Plan, framework: str, version: str) -> str:
    """The version that the campaign measures beside the new one."""
    versions = {each.version for each in plan.releases.values() if each.framework == framework}
    (old,) = versions - {_normalise(framework, version)}
    return old


def _describe_failures(rows: list[dict[str, Any]], version: str) -> str:
    """The failures of the new version; those of others are not news of this release."""
    of_new = [row for row in rows if str(row["name"]).endswith(f"-{version.lower()}")]
    return "; ".join(
        f"{row['case']}, {row['name']}: {row['status']} in {row['stage']}: {row['reason']}"
        for row in of_new
    )

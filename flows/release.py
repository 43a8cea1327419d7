"""What happens when a framework releases: the watch finds it, and its duels are run."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_index import find_previous_release
from benchcore.environments.version_requests import parse_request, pick_interpreters
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.planning import matrix
from benchcore.planning.profiles import load_profile
from benchcore.planning.release_profile import pit_versions
from benchcore.running.plans import campaign_folder, draft_plan
from benchcore.running.sites import check_site
from benchcore.state import State, default_root, open_state
from tasks import release_watch
from tasks.campaign_run import link_page, run_campaign
from tasks.form import Attempt, Framework, ProfileName, PublishedVersion, SiteName


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
    attempt: Attempt = 0,
) -> RunState[Any]:
    """Measure a release against the one before it, and both against the other framework.

    Args:
        framework: Framework that was released.
        version: Its version, as published.
        profile: Profile whose cases are measured.
        site: Where to measure.
        attempt: Number of earlier attempts; each attempt is a campaign of its own.
    """
    state = open_state(default_root())
    try:
        check_site(site)
        campaign = _plan(state, framework, version, profile=profile, site=site, attempt=attempt)
        outcome = run_campaign(campaign, str(state.root))
        failure, link = _describe_failures(outcome["failures"], version), link_page(campaign, state)
    except (UserError, CampaignIncompleteError) as error:
        failure, link = str(error), None
    release_watch.settle(framework, version, failure=failure, root=str(state.root))
    words = release_watch.alert(framework, version, failure=failure, dashboard=link)
    return Failed(message=words) if failure else Completed(message=words)


def _plan(
    state: State, framework: str, version: str, *, profile: str, site: str, attempt: int
) -> str:
    """The campaign of one attempt at a release. A run that is started again resumes it."""
    new = str(parse_request(f"{framework}=={version}").version)
    name = f"release-{framework}-{new}-{attempt}".replace("+", "-")
    path = campaign_folder(state, name) / "plan.json"
    if not path.exists():
        old = find_previous_release(framework, new, pick_interpreters(find_interpreters(), None))
        pitted = pit_versions(load_profile(profile), framework, (new, old), name="release")
        matrix.save_plan(draft_plan(pitted, site=site, campaign=name, state=state), path)
    return name


def _describe_failures(rows: list[dict[str, Any]], version: str) -> str:
    """The failures of the new version; those of others are not news of this release."""
    of_new = [row for row in rows if str(row["name"]).endswith(f"-{version.lower()}")]
    return "; ".join(
        f"{row['case']}, {row['name']}: {row['status']} in {row['stage']}: {row['reason']}"
        for row in of_new
    )

"""What happens when a framework releases: the watch finds it, and its duels are run."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore import campaign as steps
from benchcore import matrix
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.interpreters import find_interpreters
from benchcore.past_releases import find_older
from benchcore.profiles import load_profile
from benchcore.release_duels import pit_versions
from benchcore.releases import parse_request, pick_interpreters
from benchcore.state import State, default_root, open_state
from flows.campaign import link_page, run_campaign
from flows.running import check_site
from tasks import releases
from tasks.form import Attempt, Framework, ProfileName, PublishedVersion, SiteName


@flow(name="watch-releases")
def watch_releases(profile: ProfileName = "laptop", site: SiteName = "local") -> RunState[Any]:
    """Look for new releases, and have each measured once.

    Args:
        profile: Whose cases a release is measured on.
        site: Where.
    """
    root = str(open_state(default_root()).root)
    releases.find_lost(root)
    found = releases.look(root)
    for each in found.pending:
        releases.send(each, profile=profile, site=site, root=root)
    news = ", ".join(f"{each.package} {each.version}" for each in found.new) or "nothing new"
    if found.trouble:
        return Failed(message=f"{news}; not all could be asked: {'; '.join(found.trouble)}")
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
        framework: What was released.
        version: Its version, as published.
        profile: Whose cases it is measured on.
        site: Where.
        attempt: How often it was tried before; each attempt is a campaign of its own.
    """
    state = open_state(default_root())
    try:
        check_site(site)
        campaign = _plan(state, framework, version, profile=profile, site=site, attempt=attempt)
        outcome = run_campaign(campaign, str(state.root))
        failure, link = _tell_failures(outcome["failures"], version), link_page(campaign, state)
    except (UserError, CampaignIncompleteError) as error:
        failure, link = str(error), None
    releases.settle(framework, version, failure=failure, root=str(state.root))
    words = f"{framework} {version} " + (f"failed: {failure}" if failure else "was measured")
    releases.alert(words, {"framework": framework, "version": version, "dashboard": link})
    return Failed(message=words) if failure else Completed(message=words)


def _plan(
    state: State, framework: str, version: str, *, profile: str, site: str, attempt: int
) -> str:
    """The campaign of one attempt at a release. A run that is started again resumes it."""
    new = str(parse_request(f"{framework}=={version}").version)
    name = f"release-{framework}-{new}-{attempt}".replace("+", "-")
    path = steps.campaign_folder(state, name) / "plan.json"
    if not path.exists():
        old = find_older(framework, new, pick_interpreters(find_interpreters(), None))
        pitted = pit_versions(load_profile(profile), framework, (new, old), name="release")
        matrix.save_plan(steps.draft_plan(pitted, site=site, campaign=name), path)
    return name


def _tell_failures(rows: list[dict[str, Any]], version: str) -> str:
    """What the new version could not do; what others can't is no news of this release."""
    of_new = [row for row in rows if str(row["name"]).endswith(f"-{version.lower()}")]
    return "; ".join(
        f"{row['case']}, {row['name']}: {row['status']} in {row['stage']}: {row['reason']}"
        for row in of_new
    )

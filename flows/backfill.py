"""Measure past versions of a framework: finds them in the package index, and those that can be
installed here meet in one campaign."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State as RunState
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_index import PastReleases, list_past_releases
from benchcore.environments.version_requests import pick_interpreters
from benchcore.errors import UserError
from benchcore.planning import matrix
from benchcore.planning.profiles import Profile, load_profile
from benchcore.planning.release_profile import pit_versions
from benchcore.running.plans import campaign_folder, draft_plan, load_campaign
from benchcore.running.sites import check_site
from benchcore.state import default_root, open_state
from tasks.artifacts import name_key
from tasks.campaign_run import run_campaign
from tasks.form import Framework, NumVersions, ProfileName, PublishedVersion, SiteName


@flow(name="backfill", flow_run_name="backfill-{framework}", validate_parameters=True)
def backfill(
    framework: Framework,
    versions: NumVersions = 3,
    below: PublishedVersion | None = None,
    profile: ProfileName = "laptop",
    site: SiteName = "local",
) -> RunState[Any]:
    """Measure past versions of a framework against each other, and all against the other framework.

    Args:
        framework: Framework whose past versions are measured.
        versions: Number of versions, of those that can be installed here.
        below: Only versions before this one; empty to begin with the newest.
        profile: Profile whose cases are measured.
        site: Where to measure.
    """
    state = open_state(default_root())
    name = f"backfill-{framework}-{str(flow_run.id)[:8]}"
    try:
        check_site(site)
        if not (campaign_folder(state, name) / "plan.json").exists():
            interpreters = pick_interpreters(find_interpreters(), None)
            past = list_past_releases(framework, interpreters, below=below, count=versions)
            _plan(past, framework, load_profile(profile), site=site, name=name)
    except UserError as error:
        return Failed(message=str(error))
    outcome = run_campaign(name, str(state.root))
    releases = load_campaign(state, name).releases.values()
    measured = ", ".join(each.version for each in releases if each.framework == framework)
    bad = [f"{each['case']}, {each['name']}: {each['reason']}" for each in outcome["failures"]]
    if bad:
        return Failed(message=f"{framework} {measured}: {'; '.join(bad)}")
    return Completed(message=f"{framework} {measured}")


def _plan(past: PastReleases, framework: str, profile: Profile, *, site: str, name: str) -> None:
    """Plan the campaign, and list its versions. Raises UserError."""
    unmeasured = [{"version": each, "measured": "yes", "why not": ""} for each in past.found]
    for version, why in past.skipped.items():
        unmeasured.append({"version": version, "measured": "no", "why not": why})
    if unmeasured:
        create_table_artifact(key=name_key("versions", name), table=unmeasured)
    if not past.found:
        raise UserError(
            f"wanted past versions of {framework}, but none of {len(unmeasured)} can be "
            "installed here; "
            "put an older Python on PATH, or run `uv python install`"
        )
    pitted = pit_versions(profile, framework, past.found, name="backfill")
    state = open_state(default_root())
    path = campaign_folder(state, name) / "plan.json"
    matrix.save_plan(draft_plan(pitted, site=site, campaign=name, state=state), path)

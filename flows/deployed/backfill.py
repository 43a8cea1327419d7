"""Measure past versions of a framework: which there are is asked, and those that can be installed
here meet in one campaign."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State as RunState
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from benchcore import campaign as steps
from benchcore import matrix
from benchcore.errors import UserError
from benchcore.interpreters import find_interpreters
from benchcore.past_releases import Past, list_past
from benchcore.profiles import Profile, load_profile
from benchcore.release_duels import pit_versions
from benchcore.releases import pick_interpreters
from benchcore.state import default_root, open_state
from flows.campaign import key_artifact, run_campaign
from flows.running import check_site
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
        framework: Whose past.
        versions: How many versions, of those that can be installed here.
        below: Only versions before this one; without it, the newest is the first.
        profile: Whose cases they are measured on.
        site: Where.
    """
    state = open_state(default_root())
    name = f"backfill-{framework}-{str(flow_run.id)[:8]}"
    try:
        check_site(site)
        if not (steps.campaign_folder(state, name) / "plan.json").exists():
            interpreters = pick_interpreters(find_interpreters(), None)
            past = list_past(framework, interpreters, below=below, count=versions)
            _plan(past, framework, load_profile(profile), site=site, name=name)
    except UserError as error:
        return Failed(message=str(error))
    outcome = run_campaign(name, str(state.root))
    releases = steps.load_campaign(state, name).releases.values()
    measured = ", ".join(each.version for each in releases if each.framework == framework)
    bad = [f"{each['case']}, {each['name']}: {each['reason']}" for each in outcome["failures"]]
    if bad:
        return Failed(message=f"{framework} {measured}: {'; '.join(bad)}")
    return Completed(message=f"{framework} {measured}")


def _plan(past: Past, framework: str, profile: Profile, *, site: str, name: str) -> None:
    """Plan the campaign, and tell which versions are in it. Raises UserError."""
    told = [{"version": each, "measured": "yes", "why not": ""} for each in past.found]
    for version, why in past.passed_over.items():
        told.append({"version": version, "measured": "no", "why not": why})
    if told:
        create_table_artifact(key=f"versions-{key_artifact(name)}", table=told)
    if not past.found:
        raise UserError(
            f"wanted past versions of {framework}, but none of {len(told)} can be installed here; "
            "put an older Python on PATH, or run `uv python install`"
        )
    pitted = pit_versions(profile, framework, past.found, name="backfill")
    path = steps.campaign_folder(open_state(default_root()), name) / "plan.json"
    matrix.save_plan(steps.draft_plan(pitted, site=site, campaign=name), path)

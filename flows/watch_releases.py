"""Look for releases of the frameworks, and start a run of the flow `release` for each."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State as RunState
from prefect.states import Completed, Failed

from benchcore.state import default_root, open_state
from tasks import release_watch
from tasks.alerts import send_unsent
from tasks.form import ProfileName, SiteName


@flow(name="watch-releases")
def watch_releases(profile: ProfileName = "laptop", site: SiteName = "local") -> RunState[Any]:
    """Look for new releases, and start one measurement of each.

    Args:
        profile: Profile whose cases are measured.
        site: Where to measure.
    """
    state = open_state(default_root())
    root = str(state.root)
    for lost, reason in release_watch.find_lost(root):
        release_watch.record_lost_release(lost, reason, state)
    found = release_watch.check_index(root)
    for each in found.pending:
        release_watch.start_release(each, profile=profile, site=site, root=root)
    send_unsent(root)
    news = ", ".join(f"{each.package} {each.version}" for each in found.new) or "nothing new"
    if found.errors:
        return Failed(message=f"{news}; not all queries succeeded: {'; '.join(found.errors)}")
    return Completed(message=news)

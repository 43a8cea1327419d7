"""How far a campaign is, as a bar on its run's page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from prefect.artifacts import create_progress_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from benchcore import campaign as steps
from benchcore.state import State


@contextmanager
def show_progress(campaign: str, root: str, key: str) -> Iterator[Callable[[], None]]:
    """A bar that says how many of a campaign's duels are measured, brought up to date by whoever
    calls what this yields."""
    state = State(Path(root))
    plan = steps.load_campaign(state, campaign)
    shown = -1
    artifact = create_progress_artifact(0.0, key=key, description="no duel measured yet")
    assert isinstance(artifact, UUID)
    with get_client(sync_client=True) as client:

        def tell() -> None:
            nonlocal shown
            measured = sum(steps.is_measured(state, plan, duel) for duel in plan.duels)
            if measured == shown:
                return
            shown, total = measured, len(plan.duels)
            told = ArtifactUpdate(
                data=100 * measured / total, description=f"{measured} of {total} duels measured"
            )
            client.update_artifact(artifact, told)

        tell()
        yield tell

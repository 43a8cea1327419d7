"""Sends a campaign to Weights & Biases while it is measured: between two duels, never in one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State as RunState

from benchcore import variables
from benchcore.state import State, open_state
from dashboards.to_wandb.runs import send_runs, write_progress
from tasks import pipeline

PAUSE_S = 120.0
"""Between two updates: one takes seconds, which the campaign waits for."""
LIMIT_S = 30.0
"""Limit of writing an update, and of sending it."""


@dataclass
class LiveUpdates:
    """The updates of one campaign. After one that fails there is no further one."""

    campaign: str
    root: str
    is_on: bool = field(default_factory=lambda: variables.WANDB.read() is not None)
    rejected: list[str] = field(default_factory=list[str])
    """Documents that an update could not ingest, each with its reason."""
    _ended_at: float = field(default_factory=time.monotonic)
    _num_documents: int = 0

    def update(self) -> None:
        """Ingest and send the duels that have ended since, at most once in PAUSE_S. Never fails."""
        if not self.is_on or time.monotonic() - self._ended_at < PAUSE_S:
            return
        number = len(list((State(Path(self.root)).spool / self.campaign).glob("*.json")))
        if number > self._num_documents:
            self._num_documents = number
            self._send()
            self._ended_at = time.monotonic()

    def _send(self) -> None:
        ingested: RunState[Any] = pipeline.ingest_results(root=self.root, return_state=True)
        self.is_on = ingested.is_completed()
        if self.is_on:
            self.rejected += ingested.result()
            sent = send_progress(campaign=self.campaign, root=self.root, return_state=True)
            self.is_on = sent.is_completed()


@task(task_run_name="wandb-live-{campaign}", cache_policy=NO_CACHE)
def send_progress(*, campaign: str, root: str) -> None:
    """Send what is measured of the campaign so far."""
    state = open_state(Path(root))
    write_progress(state, campaign, LIMIT_S)
    reason = send_runs(state, LIMIT_S)
    if reason is not None:
        raise ConnectionError(f"{reason}; this campaign is sent at its end")

"""Measures a campaign's duels in a Slurm cluster: shards go out, and are waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

from prefect.client.schemas.objects import FlowRun

from benchcore.placement import Shard
from flows.measure_shard import measure_shard
from tasks import slurm_shards, steps
from tasks.slurm_shards import Dispatch

_POLL_S = 1.0
_LOOK_S = 60.0
"""How often it is looked whether anything keeps shards from going on."""


def measure_in_shards(
    campaign: str, root: str, tell: Callable[[], None] = lambda: None
) -> list[str]:
    """Every duel in the allocation of some shard; why the ones failed that left no result. `tell`
    is called whenever more may have been measured.

    Shards that are out already, sent by an earlier call, are waited for and not sent again.
    """
    with slurm_shards.open_dispatch(campaign, root) as dispatch:
        lost = _measure(dispatch, tell)
    by_words: dict[str, list[str]] = {}
    for duel in steps.list_duels(campaign, root):
        if duel.duel_run in lost:
            by_words.setdefault(lost[duel.duel_run], []).append(duel.title)
    return [f"{', '.join(titles)}: {words}" for words, titles in by_words.items()]


def _measure(dispatch: Dispatch, tell: Callable[[], None]) -> dict[str, str]:
    dispatch.open_pool()
    dispatch.settle_left()
    lost: dict[str, str] = {}
    while shards := dispatch.cut_shards(lost):
        dispatch.hand_over(shards, measure_shard)
        for shard, run in _wait_for_some(shards, dispatch, tell):
            lost |= dispatch.settle(shard, run)
    return lost


def _wait_for_some(
    shards: list[Shard], dispatch: Dispatch, tell: Callable[[], None]
) -> list[tuple[Shard, FlowRun]]:
    """Those shards that ended, once there are any; none once a flow run is gone, which somebody
    deleted."""
    looked_at = 0.0
    while True:
        runs = slurm_shards.find_runs(shards, dispatch.client)
        dispatch.tell_measured(shards)
        tell()
        dispatch.tell_running(runs)
        for shard, run in runs:
            dispatch.tell(shard.id, f"{shard.title}: {slurm_shards.describe(run)}")
        if time.monotonic() - looked_at >= _LOOK_S:
            looked_at = time.monotonic()
            dispatch.tell("trouble", dispatch.find_trouble() or "")
        ended = [(shard, run) for shard, run in runs if slurm_shards.has_ended(run)]
        if ended or len(runs) < len(shards):
            return ended
        time.sleep(_POLL_S)

"""Measures a campaign's duels in a Slurm cluster: shards go out, and are waited for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun

from benchcore.placement import Shard
from flows.measure_shard import measure_shard
from tasks import slurm_shards, steps

_POLL_S = 1.0
_LOOK_S = 60.0
"""How often it is looked whether anything keeps shards from going on."""


def measure_in_shards(campaign: str, root: str) -> list[str]:
    """Every duel in the allocation of some shard; why the ones failed that left no result.

    Shards that are out already, sent by an earlier call, are waited for and not sent again.
    """
    with slurm_shards.hold_campaign(campaign, root), slurm_shards.connect() as client:
        return _measure(campaign, root, client)


def _measure(campaign: str, root: str, client: SyncPrefectClient) -> list[str]:
    deployment = slurm_shards.deploy(measure_shard, campaign, root)
    for shard, run in slurm_shards.find_runs(slurm_shards.list_open(campaign, root), client):
        if run.state and run.state.is_final():  # nobody waited for it: tried again
            slurm_shards.settle_shard(shard, root, slurm_shards.explain_end(run, campaign, root))
    lost: dict[str, str] = {}
    said = _Said(client)
    while shards := slurm_shards.cut_shards(campaign, root, lost):
        slurm_shards.hand_over(shards, deployment, root, client)
        for shard, run in _wait_for_some(shards, campaign, root, said):
            words = slurm_shards.explain_end(run, campaign, root)
            lost |= slurm_shards.settle_shard(shard, root, words)
    by_words: dict[str, list[str]] = {}
    for duel in steps.list_duels(campaign, root):
        if duel.duel_run in lost:
            by_words.setdefault(lost[duel.duel_run], []).append(duel.title)
    return [f"{', '.join(titles)}: {words}" for words, titles in by_words.items()]


@dataclass
class _Said:
    """What whoever follows the campaign was told already, and whom to ask for more."""

    client: SyncPrefectClient
    where: dict[str, str] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)
    trouble: str | None = None
    looked_at: float = 0.0


def _wait_for_some(
    shards: list[Shard], campaign: str, root: str, said: _Said
) -> list[tuple[Shard, FlowRun]]:
    """Those shards that ended, once there are any; none once a flow run is gone, which somebody
    deleted."""
    while True:
        runs = slurm_shards.find_runs(shards, said.client)
        _tell(shards, runs, campaign, root, said)
        ended = [(shard, run) for shard, run in runs if run.state and run.state.is_final()]
        if ended or len(runs) < len(shards):
            return ended
        time.sleep(_POLL_S)


def _tell(
    shards: list[Shard], runs: list[tuple[Shard, FlowRun]], campaign: str, root: str, said: _Said
) -> None:
    """What is new since the last time."""
    slurm_shards.tell_measured(campaign, root, shards, said.measured)
    for shard, run in runs:
        where = slurm_shards.describe(run)
        if said.where.get(shard.id) != where:
            said.where[shard.id] = where
            slurm_shards.tell(campaign, root, f"{shard.title}: {where}")
    if time.monotonic() - said.looked_at >= _LOOK_S:
        said.looked_at = time.monotonic()
        trouble = slurm_shards.find_trouble(campaign, root, said.client)
        if trouble and trouble != said.trouble:
            slurm_shards.tell(campaign, root, trouble)
        said.trouble = trouble

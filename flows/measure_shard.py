"""Measure the duels of one shard inside its allocation. Imports nothing that a job does without."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from benchcore.errors import CampaignIncompleteError
from benchcore.running.shards import Shard
from benchcore.running.slurm.own_job import OwnJob
from benchcore.state import default_root
from tasks import measurement
from tasks.slots import open_slots


@flow(name="measure-shard", flow_run_name="{campaign}-{shard}", validate_parameters=True)
def measure_shard(campaign: str, shard: str, token: str) -> State[Any]:
    """One duel after the other on each of the job's GPUs, until the job is about to end; the rest
    is handed back. Duels that were measured before are not repeated. The first on each GPU is begun
    however long it may take.

    Raises CampaignIncompleteError at the end if a duel left no result, and at once if this node
    does not see the folder that the shard was written into.
    """
    root = str(default_root())
    opened = measurement.open_shard(campaign, shard, token, root)
    job = measurement.find_job(opened)
    # Without a proof the checks exclude its pairs; the shard continues.
    measurement.prove_shard(opened, root=root, job=job, return_state=True)
    duels = measurement.list_shard(opened, root)
    lost, rest = _measure_all(duels, opened, job, root)
    measurement.report_shard(opened, root, lost, rest)
    if lost:
        raise CampaignIncompleteError("\n".join(lost.values()))
    back = f", {len(rest)} handed back as its time was up" if rest else ""
    return Completed(message=f"{len(duels) - len(rest)} duels measured{back}")


def _measure_all(
    duels: dict[str, str], shard: Shard, job: OwnJob | None, root: str
) -> tuple[dict[str, str], list[str]]:
    """Why duels left no result, and those that are handed back."""
    order: dict[str, Any] = {"campaign": shard.campaign, "root": root, "job": job}
    order["log"] = measurement.shard_log(shard, root)
    lost, rest, waiting = dict[str, str](), list(duels), list(duels)
    with open_slots(job) as slots:
        first = waiting[: slots.num]
        while waiting or slots.num_busy:
            if waiting and slots.num_busy < slots.num:
                duel_run = waiting.pop(0)
                if duel_run in first or measurement.has_time(shard, duel_run, job):
                    slots.begin(duels[duel_run], duel_run, **order)
                else:
                    waiting.clear()
                continue
            duel_run, ended = slots.wait()
            if measurement.ran_out_of_time(ended) and duel_run not in first:
                waiting.clear()
                continue
            rest.remove(duel_run)
            if not ended.is_completed():
                lost[duel_run] = str(ended.message)
    return lost, rest

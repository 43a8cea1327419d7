"""Measure the duels of one shard inside its allocation. Imports nothing that a job does without."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from benchcore.errors import CampaignIncompleteError
from benchcore.state import default_root
from tasks import measuring


@flow(name="measure-shard", flow_run_name="{campaign}-{shard}", validate_parameters=True)
def measure_shard(campaign: str, shard: str, token: str) -> State[Any]:
    """One duel after the other, until the job is about to end; the rest is handed back. Duels that
    were measured before are not repeated. The first is begun however long it may take.

    Raises CampaignIncompleteError at the end if a duel left no result, and at once if this node
    does not see the folder that the shard was written into.
    """
    root = str(default_root())
    opened = measuring.open_shard(campaign, shard, token, root)
    job = measuring.find_job(opened)
    # Without a proof its pairs get no ratio, told by the checks; the shard goes on.
    measuring.prove_shard(opened, root=root, return_state=True)
    duels, log = measuring.list_shard(opened, root), measuring.shard_log(opened, root)
    rest, lost = list(duels), dict[str, str]()
    for duel_run, title in duels.items():
        if len(rest) < len(duels) and not measuring.has_time(opened, duel_run, job):
            break
        ended: State[str] = measuring.measure_duel(
            title, duel_run, campaign=campaign, root=root, log=log, job=job, return_state=True
        )
        if len(rest) < len(duels) and measuring.ran_out_of_time(ended):
            break
        rest.remove(duel_run)
        if not ended.is_completed():
            lost[duel_run] = str(ended.message)
    measuring.report_shard(opened, root, lost, rest)
    if lost:
        raise CampaignIncompleteError("\n".join(lost.values()))
    back = f", {len(rest)} handed back as its time was up" if rest else ""
    return Completed(message=f"{len(duels) - len(rest)} duels measured{back}")

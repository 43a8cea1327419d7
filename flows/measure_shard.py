"""Measure the duels of one shard inside its allocation. Imports nothing that a job does without."""

from __future__ import annotations

from prefect import flow
from prefect.client.schemas.objects import State

from benchcore.errors import CampaignIncompleteError
from benchcore.state import default_root
from tasks import measuring


@flow(name="measure-shard", flow_run_name="{campaign}-{shard}", validate_parameters=True)
def measure_shard(campaign: str, shard: str, token: str) -> None:
    """One duel after the other; those that were measured before are not repeated.

    Raises CampaignIncompleteError at the end if a duel left no result, and at once if this node
    does not see the folder that the shard was written into.
    """
    root = str(default_root())
    opened = measuring.open_shard(campaign, shard, token, root)
    # Without a proof its pairs get no ratio, told by the checks; the shard goes on.
    measuring.prove_shard(opened, root=root, return_state=True)
    log, lost = measuring.shard_log(opened, root), dict[str, str]()
    for duel_run, title in measuring.list_shard(opened, root):
        ended: State[str] = measuring.measure_duel(
            title, duel_run, campaign=campaign, root=root, log=log, return_state=True
        )
        if not ended.is_completed():
            lost[duel_run] = str(ended.message)
    measuring.report_shard(opened, root, lost)
    if lost:
        raise CampaignIncompleteError("\n".join(lost.values()))

"""Measure the duels of one shard inside its allocation. Imports only what a job needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from benchcore.errors import CampaignIncompleteError
from benchcore.state import default_root
from tasks import measurement
from tasks.slots import measure_in_slots


@flow(name="measure-shard", flow_run_name="{campaign}-{shard}", validate_parameters=True)
def measure_shard(campaign: str, shard: str, token: str) -> State[Any]:
    """Measure one duel after the other on each of the job's GPUs, until the job is about to end. A
    later shard measures the rest. Duels that were measured before are not repeated. The first duel
    on each GPU starts however long it may take, unless proofs took the job's time.

    Raises CampaignIncompleteError at the end if a duel left no result, and at once if this node
    does not share the folder of the shard.
    """
    root = str(default_root())
    opened = measurement.open_shard(campaign, shard, token, root)
    job = measurement.find_job(opened)
    # Without a proof the checks exclude its pairs; the shard continues.
    proofs = measurement.list_proofs(
        measurement.prove_shard(opened, root=root, job=job, return_state=True)
    )
    duels = measurement.list_shard(opened, root)
    returnable = measurement.list_returnable(opened, proofs, root)
    report = replace(measure_in_slots(duels, opened, job, root, returnable), proofs=proofs)
    measurement.report_shard(opened, root, report)
    if report.lost:
        raise CampaignIncompleteError("\n".join(report.lost.values()))
    back = f", {len(report.rest)} returned, as its time was up" if report.rest else ""
    return Completed(message=f"{len(duels) - len(report.rest)} duels measured{back}")

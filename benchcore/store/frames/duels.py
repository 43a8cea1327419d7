"""Duel runs, and what was proven, compared, read back and found wrong in each, as frames."""

from __future__ import annotations

import pandas as pd
from sqlalchemy import Engine, and_
from sqlalchemy.orm import aliased

from benchcore.store.frames.reading import CASE, OLDEST_FIRST, read_frame, select_columns
from benchcore.store.models import ContenderRun, DuelRun, Equivalence, FailedCheckRow, Proof

_PROVEN = ("workload", "use_case", "precision", "snapshot", "device_fingerprint")


def duel_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a duel run: where and when it ran, and with which harness."""
    query = select_columns(
        *CASE,
        DuelRun.ended_at,
        DuelRun.site,
        DuelRun.node,
        DuelRun.device_model,
        DuelRun.device_fingerprint,
        DuelRun.host,
        DuelRun.harness_version,
        DuelRun.snapshot,
        DuelRun.method,
    )
    return read_frame(engine, query.order_by(*OLDEST_FIRST), campaign)


def equivalence_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a compared quantity of a pair; None = of every campaign."""
    query = select_columns(
        *CASE,
        Equivalence.a,
        Equivalence.b,
        Equivalence.quantity,
        Equivalence.max_relative,
        Equivalence.l2_relative,
        Equivalence.tolerance,
        Equivalence.agrees,
    )
    query = query.join(Equivalence, Equivalence.duel_run == DuelRun.id)
    order = (*OLDEST_FIRST, Equivalence.a, Equivalence.b, Equivalence.quantity)
    return read_frame(engine, query.order_by(*order), campaign)


def proof_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a quantity proven of a pair of contenders: of their environments, on the duel's
    device, by the snapshot that measured them. A pair without rows was not proven."""
    one, other = aliased(ContenderRun), aliased(ContenderRun)
    columns = (Proof.oracle_error, Proof.oracle_bound, Proof.a_error, Proof.a_bound)
    rest = (Proof.b_error, Proof.b_bound, Proof.passed, Proof.reason, Proof.first_drift)
    query = select_columns(
        *CASE, one.name.label("a"), other.name.label("b"), Proof.quantity, *columns, *rest
    )
    query = query.join(one, one.duel_run == DuelRun.id).join(other, other.duel_run == DuelRun.id)
    query = query.join(
        Proof,
        and_(
            Proof.a_key == one.environment_key,
            Proof.b_key == other.environment_key,
            *(getattr(Proof, key) == getattr(DuelRun, key) for key in _PROVEN),
            Proof.checkpoint.is_not_distinct_from(DuelRun.checkpoint),
        ),
    )
    return read_frame(
        engine, query.order_by(*OLDEST_FIRST, one.name, other.name, Proof.id), campaign
    )


def manifest_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row per contender that finished: the settings its arm requested, and those read back."""
    columns = (ContenderRun.name, ContenderRun.arm, ContenderRun.framework, ContenderRun.settings)
    query = select_columns(*CASE, *columns, ContenderRun.effective)
    query = query.join(ContenderRun, ContenderRun.duel_run == DuelRun.id)
    query = query.where(ContenderRun.status == "ok")
    frame = read_frame(engine, query.order_by(*OLDEST_FIRST, ContenderRun.position), campaign)
    manifests = [dict(each.get("manifest", {})) for each in frame["effective"]]
    kept = frame.drop(columns="effective")
    return kept.assign(manifest=pd.Series(manifests, index=frame.index, dtype="object"))


def failed_check_frame(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    """One row a failed expectation; None = of every campaign."""
    query = select_columns(
        *CASE,
        FailedCheckRow.contender,
        FailedCheckRow.other,
        FailedCheckRow.suite,
        FailedCheckRow.expectation,
        FailedCheckRow.reason,
        FailedCheckRow.checked_at,
    )
    query = query.join(FailedCheckRow, FailedCheckRow.duel_run == DuelRun.id)
    return read_frame(engine, query.order_by(*OLDEST_FIRST, FailedCheckRow.id), campaign)

"""Duel runs, and what was proven, compared, read back and found wrong in each, as frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from sqlalchemy import Engine, and_
from sqlalchemy.orm import aliased

from benchcore.cell.document import PRODUCTS_LATER
from benchcore.store.frames.reading import (
    CASE,
    OLDEST_FIRST,
    Campaigns,
    columns_of,
    read_frame,
    select_columns,
)
from benchcore.store.incoming.proofs import OF_DUEL
from benchcore.store.models import ContenderRun, DuelRun, Equivalence, FailedCheckRow, Proof

_OF_PROOF = (
    *("quantity", "reference_error", "reference_bound", "a_error", "a_bound", "b_error", "b_bound"),
    *("passed", "reason", "first_drift"),
)


def duel_frame(engine: Engine, campaign: Campaigns = None) -> pd.DataFrame:
    """One row per duel run: where and when it ran, and with which harness."""
    where = ("ended_at", "site", "node", "device_model", "device_fingerprint", "host")
    harness = ("harness_version", "snapshot", "method")
    query = select_columns(*CASE, *columns_of(DuelRun, *where, *harness))
    return read_frame(engine, query.order_by(*OLDEST_FIRST), campaign)


def equivalence_frame(engine: Engine, campaign: Campaigns = None) -> pd.DataFrame:
    """One row per compared quantity of a pair; None = of every campaign."""
    compared = ("a", "b", "quantity", "max_relative", "l2_relative", "tolerance", "agrees")
    query = select_columns(*CASE, *columns_of(Equivalence, *compared)).join(Equivalence)
    order = (*OLDEST_FIRST, Equivalence.a, Equivalence.b, Equivalence.quantity)
    return read_frame(engine, query.order_by(*order), campaign)


def proof_frame(engine: Engine, campaign: Campaigns = None) -> pd.DataFrame:
    """One row per quantity proven of a pair of contenders: of their environments, on the duel's
    device, by the snapshot that measured them. A pair without rows was not proven."""
    one, other = aliased(ContenderRun), aliased(ContenderRun)
    query = select_columns(
        *CASE, one.name.label("a"), other.name.label("b"), *columns_of(Proof, *_OF_PROOF)
    )
    query = query.join(one, one.duel_run == DuelRun.id).join(other, other.duel_run == DuelRun.id)
    query = query.join(
        Proof,
        and_(
            Proof.a_key == one.environment_key,
            Proof.b_key == other.environment_key,
            OF_DUEL,
        ),
    )
    return read_frame(
        engine, query.order_by(*OLDEST_FIRST, one.name, other.name, Proof.id), campaign
    )


def manifest_frame(engine: Engine, campaign: Campaigns = None) -> pd.DataFrame:
    """One row per contender that finished: the settings its arm requested, and those read back."""
    columns = columns_of(ContenderRun, "name", "arm", "framework", "settings", "effective")
    query = select_columns(*CASE, *columns).join(ContenderRun)
    query = query.where(ContenderRun.status == "ok")
    frame = read_frame(engine, query.order_by(*OLDEST_FIRST, ContenderRun.position), campaign)
    manifests = [dict(each.get("manifest", {})) for each in frame["effective"]]
    kept = frame.drop(columns="effective")
    return kept.assign(manifest=pd.Series(manifests, index=frame.index, dtype="object"))


def product_frame(engine: Engine, campaign: Campaigns = None) -> pd.DataFrame:
    """One row per contender that finished with a framework, and a second one where a later start
    was inspected, too: the FLOPs and dtypes counted of its step (`products`; None = not counted),
    and the analytic FLOPs of its case."""
    of_duel = columns_of(DuelRun, "method", "device", "flops_per_step")
    columns = columns_of(ContenderRun, "name", "framework", "effective")
    query = select_columns(*CASE, *of_duel, *columns).join(ContenderRun)
    query = query.where(ContenderRun.status == "ok", ContenderRun.framework != "stdlib")
    frame = read_frame(engine, query.order_by(*OLDEST_FIRST, ContenderRun.position), campaign)
    found = pd.Series(map(_list_products, frame["effective"]), index=frame.index, dtype="object")
    kept = frame.drop(columns="effective").assign(products=found)
    return kept.explode("products", ignore_index=True)


def _list_products(effective: Mapping[str, Any]) -> list[Mapping[str, Any] | None]:
    later = effective.get(PRODUCTS_LATER)
    return [effective.get("products"), *([later] if later else [])]


def failed_check_frame(engine: Engine, campaign: Campaigns = None) -> pd.DataFrame:
    """One row per failed expectation; None = of every campaign."""
    columns = ("contender", "other", "suite", "expectation", "reason", "severity", "checked_at")
    query = select_columns(*CASE, *columns_of(FailedCheckRow, *columns)).join(FailedCheckRow)
    return read_frame(engine, query.order_by(*OLDEST_FIRST, FailedCheckRow.id), campaign)

"""Epochs of training on data sets, as rows: time, wait, what was learnt, energy."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from benchcore.cell.measure.degraded import leave_out_degraded
from benchcore.store.frames.reading import Campaigns, of_campaigns, select_columns
from benchcore.store.models import ContenderRun, DuelRun, StartRun

COLUMNS = (
    *("campaign", "duel_run", "workload", "case_name", "use_case", "batch", "precision", "track"),
    *("dataset", "mode", "num_train", "num_val", "name", "arm", "framework", "version", "epoch"),
    *("num_starts", "num_degraded", "epoch_ns", "wait_share", "examples_per_s", "loss", "correct"),
    *("accuracy", "validation_ns", "gross_mj"),
)


def epoch_frame(engine: Engine, campaign: Campaigns = None) -> pd.DataFrame:
    """One row an epoch of a contender that finished: medians over its starts; None = of every
    campaign.

    `epoch_ns` is the time of the training steps alone, over the undisturbed starts where there are
    any (`num_degraded` counts the others); `wait_share` is the part of it spent waiting for the
    loader. `accuracy` is top-1 in validation, a missing `gross_mj` no counter.
    """
    query = (
        select_columns(DuelRun, ContenderRun, StartRun)
        .join(ContenderRun)
        .join(StartRun)
        .where(StartRun.epochs.is_not(None), ContenderRun.status == "ok")
        .order_by(DuelRun.started_at, ContenderRun.position, StartRun.start_index)
    )
    query = of_campaigns(query, campaign)
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    with Session(engine) as session:
        for duel, contender, start in session.execute(query):
            for block, epoch in zip(start.blocks, start.epochs or (), strict=True):
                row = _describe(duel, contender) | _measure(duel, block, epoch)
                groups.setdefault((duel.id, contender.name, epoch["epoch"]), []).append(row)
    rows = [_summarise(each) for each in groups.values()]
    numbers = dict.fromkeys(COLUMNS[-8:], "float64")
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(numbers)


def _describe(duel: DuelRun, contender: ContenderRun) -> dict[str, Any]:
    same = ("campaign", "workload", "case_name", "use_case", "batch", "precision", "track")
    dataset = duel.dataset or {}
    return {
        **{key: getattr(duel, key) for key in same},
        **{key: getattr(contender, key) for key in ("name", "arm", "framework", "version")},
        **{key: dataset.get(key) for key in ("mode", "num_train", "num_val")},
        "duel_run": duel.id,
        "dataset": dataset.get("name"),
    }


def _measure(duel: DuelRun, block: Mapping[str, Any], epoch: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("epoch", "loss", "correct", "validation_ns", "gross_mj")
    elapsed_ns, num_val = block["elapsed_ns"], (duel.dataset or {}).get("num_val")
    return {
        **{key: epoch[key] for key in kept},
        "epoch_ns": elapsed_ns,
        "wait_share": epoch["wait_ns"] / elapsed_ns,
        "examples_per_s": block["steps"] * duel.batch / elapsed_ns * 1e9,
        "accuracy": epoch["correct"] / num_val if num_val else None,
        "degraded": not leave_out_degraded([dict(block)]),
    }


_TIMED = ("epoch_ns", "wait_share", "examples_per_s", "gross_mj")
_LEARNT = ("loss", "correct", "accuracy", "validation_ns")


def _summarise(starts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What is timed: of undisturbed starts, if there are any. What is learnt: of all."""
    valid = [each for each in starts if not each["degraded"]]
    middles = {
        **{key: _median(valid or starts, key) for key in _TIMED},
        **{key: _median(starts, key) for key in _LEARNT},
    }
    counts = {"num_starts": len(starts), "num_degraded": len(starts) - len(valid)}
    return {**starts[0], **middles, **counts}


def _median(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    values = [row[key] for row in rows if row[key] is not None]
    return statistics.median(values) if values else None


def list_epochs(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """A campaign's epochs with their columns by name; None = not measured."""
    frame = epoch_frame(engine, campaign).astype(object)
    return [
        {str(key): value for key, value in row.items()}
        for row in frame.where(frame.notna(), None).to_dict("records")
    ]

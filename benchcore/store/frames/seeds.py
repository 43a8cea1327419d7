"""Trainings to a target accuracy, as rows: when each start of each side reached it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from benchcore.cell.measure.degraded import find_degraded
from benchcore.store.frames.reading import Campaigns, of_campaigns, select_columns
from benchcore.store.models import ContenderRun, DuelRun, StartRun

_COLUMNS = (
    *("campaign", "duel_run", "workload", "case_name", "track", "dataset", "num_val", "target"),
    *("position", "name", "arm", "framework", "version"),
    *("seed", "inputs_sha256", "num_epochs", "seconds"),
    *("accuracy", "disturbed"),
)


def seed_frame(engine: Engine, campaign: Campaigns = None) -> pd.DataFrame:
    """One row per start of a contender that finished training to a target accuracy, in the order of
    the duel's sides and starts; None = of every campaign.

    `seconds` of training, without validation, end with the epoch whose accuracy in validation is at
    least `target`; missing = never, after `num_epochs`. `accuracy` is that of the last epoch.
    `disturbed`: one of those epochs was.
    """
    query = (
        select_columns(DuelRun, ContenderRun, StartRun)
        .join(ContenderRun)
        .join(StartRun)
        .where(StartRun.epochs.is_not(None), ContenderRun.status == "ok")
        .order_by(DuelRun.started_at, ContenderRun.position, StartRun.start_index)
    )
    with Session(engine) as session:
        found = session.execute(of_campaigns(query, campaign))
        rows = [_describe(*each) for each in found if (each[0].dataset or {}).get(_TARGET)]
    types = {"seconds": "float64", "accuracy": "float64", "target": "float64", "disturbed": "bool"}
    return pd.DataFrame(rows, columns=list(_COLUMNS)).astype(types)


_TARGET = "target_accuracy"
_OF_CONTENDER = ("position", "name", "arm", "framework", "version")


def _describe(duel: DuelRun, contender: ContenderRun, start: StartRun) -> dict[str, Any]:
    dataset, epochs = duel.dataset or {}, start.epochs or []
    num_val, target = dataset["num_val"], dataset[_TARGET]
    enough = [each["correct"] >= target * num_val - 1e-9 for each in epochs]
    reached = enough.index(True) if any(enough) else None
    blocks: Sequence[Mapping[str, Any]] = start.blocks
    until = blocks if reached is None else blocks[: reached + 1]
    seconds = None if reached is None else sum(each["elapsed_ns"] for each in until) / 1e9
    degraded = find_degraded(blocks)
    return {
        **{key: getattr(duel, key) for key in ("campaign", "workload", "case_name", "track")},
        **{key: getattr(contender, key) for key in _OF_CONTENDER},
        **{key: getattr(start, key) for key in ("seed", "inputs_sha256")},
        "duel_run": duel.id,
        "dataset": dataset["name"],
        "num_val": num_val,
        "target": target,
        "num_epochs": len(epochs) if reached is None else reached + 1,
        "seconds": seconds,
        "accuracy": epochs[-1]["correct"] / num_val,
        "disturbed": any(each["round"] in degraded for each in until),
    }

"""What trainings to a target accuracy showed over their seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Engine

from benchcore.store.frames.reading import Campaigns
from benchcore.store.frames.seeds import seed_frame
from benchcore.verdict.duel.seeds import (
    TrainedSeed,
    judge_accuracies,
    judge_times,
    summarise_side,
)

_OF_DUEL = ("campaign", "duel_run", "workload", "case_name", "track", "dataset", "target")
_OF_SIDE = ("name", "arm", "framework", "version")
_OF_SEED = ("seconds", "num_epochs", "accuracy", "disturbed")


def list_trainings(
    engine: Engine, campaign: Campaigns, ratios: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One row per duel that trained to a target: both sides in its order (`a`, `b`; None = it did
    not finish), each seed of them, the `time` ratio and the test of their `accuracy`.

    `ratios` are the campaign's, whose pairs count or do not: the times of the latter are not
    compared. Accuracies are, as they may be why a pair does not count.
    """
    why_not = {each["duel_run"]: _why_not(each) for each in ratios}
    frame = seed_frame(engine, campaign)
    groups = frame.astype(object).where(frame.notna(), None).groupby("duel_run", sort=False)
    return [
        _judge(rows.to_dict("records"), why_not.get(str(duel_run), "there is no pair"))
        for duel_run, rows in groups
    ]


def _why_not(ratio: Mapping[str, Any]) -> str:
    return "" if ratio["counts"] else f"the pair does not count: {ratio['reason']}"


def _judge(rows: list[dict[Any, Any]], why_not: str) -> dict[str, Any]:
    first = rows[0]
    a, b = ({row["seed"]: row for row in rows if row["position"] == each} for each in (0, 1))
    pairs = [(_trained(a[seed]), _trained(b[seed])) for seed in a if seed in b]
    return {
        **{key: first[key] for key in _OF_DUEL},
        "a": _describe_side(a),
        "b": _describe_side(b),
        "seeds": [
            {"seed": seed, "a": _pick(a.get(seed)), "b": _pick(b.get(seed))} for seed in (a | b)
        ],
        "time": dataclasses.asdict(judge_times(pairs, why_not)),
        "accuracy": dataclasses.asdict(judge_accuracies(pairs, first["num_val"])),
    }


def _describe_side(side: Mapping[int, Mapping[str, Any]]) -> dict[str, Any] | None:
    if not side:
        return None
    named = {key: next(iter(side.values()))[key] for key in _OF_SIDE}
    return {**named, **dataclasses.asdict(summarise_side([_trained(row) for row in side.values()]))}


def _pick(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else {key: row[key] for key in _OF_SEED}


def _trained(row: Mapping[str, Any]) -> TrainedSeed:
    return TrainedSeed(**{field.name: row[field.name] for field in dataclasses.fields(TrainedSeed)})

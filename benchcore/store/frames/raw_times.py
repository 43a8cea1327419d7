"""The raw times of a campaign's duels: every block and the latencies of every start."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, select

from benchcore.cell.measure.degraded import find_degraded
from benchcore.store.frames.reading import Campaigns, columns_of, of_campaigns
from benchcore.store.models import IS_NO_CALIBRATION_RUN, ContenderRun, DuelRun, StartRun

_OF_START = (
    *("start_index", "status", "caches", "compilation", "cache_hits", "stages", "steps_per_block"),
    *("median_step_ns", "latency_ns", "blocks"),
)


def read_raw_times(engine: Engine, campaign: Campaigns) -> dict[str, dict[str, dict[str, Any]]]:
    """The raw times by duel run and contender: its `framework`, `traceback`, `settings`,
    `effective` settings, `packages`, and its `starts` with `blocks`: round, ns per step, and why it
    is degraded."""
    kept = ("framework", "traceback", "settings", "effective", "packages", "environment_key")
    contenders = of_campaigns(
        select(*columns_of(ContenderRun, "duel_run", "name", *kept))
        .join(DuelRun, DuelRun.id == ContenderRun.duel_run)
        .where(IS_NO_CALIBRATION_RUN)
        .order_by(ContenderRun.duel_run, ContenderRun.position),
        campaign,
    )
    starts = of_campaigns(
        select(*columns_of(StartRun, "duel_run", "contender", *_OF_START))
        .join(DuelRun, DuelRun.id == StartRun.duel_run)
        .where(IS_NO_CALIBRATION_RUN)
        .order_by(StartRun.duel_run, StartRun.contender, StartRun.start_index),
        campaign,
    )
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with engine.connect() as connection:  # a session makes objects of the rows first
        for row in connection.execute(contenders).mappings():
            named: dict[str, Any] = {name: row[name] for name in kept}
            found.setdefault(row["duel_run"], {})[row["name"]] = {**named, "starts": []}
        for row in connection.execute(starts).mappings():
            start = {name: row[name] for name in _OF_START}
            blocks = _describe_blocks(row["blocks"])
            contender = found.get(row["duel_run"], {}).get(row["contender"])
            if contender is None:  # another process stored it a moment ago
                continue
            contender["starts"].append({**start, "blocks": blocks})
    return found


def _describe_blocks(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    degraded = find_degraded(blocks)
    return [
        {
            "round": each["round"],
            "ns": each["elapsed_ns"] / each["steps"],
            "degraded": degraded.get(each["round"], ""),
        }
        for each in blocks
    ]

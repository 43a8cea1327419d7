"""Reads the conditions of duel runs from what their documents recorded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Engine, select

from benchcore.names import name_cpus
from benchcore.store.models import ContenderRun, DuelRun
from benchcore.verdict.duel.parity import SHIPPED
from benchcore.verdict.history.conditions import Conditions
from benchcore.verdict.history.series import METHOD_CONDITION

_PINNED = ("previous", "pinned")
"""Roles whose environment is old on purpose: its libraries are not conditions of the night."""


_MOST_VARIABLES = 500
"""Variables of one query: SQLite limits them."""


def read_conditions(
    engine: Engine, campaign: str | Sequence[str] | None = None, runs: Sequence[str] | None = None
) -> dict[str, Conditions]:
    """The known conditions of every duel run, by its id; of these campaigns, or of these `runs`.
    Equal ones are one object, so that histories of many nights are compared at once."""
    starts = range(0, 0 if runs is None else len(runs), _MOST_VARIABLES)
    parts = [None] if runs is None else [runs[first : first + _MOST_VARIABLES] for first in starts]
    shared, found = dict[frozenset[tuple[str, str]], Conditions](), dict[str, Conditions]()
    for part in parts:
        for run, each in _read_part(engine, campaign, part).items():
            found[run] = shared.setdefault(frozenset(each.items()), each)
    return found


def _read_part(
    engine: Engine, campaign: str | Sequence[str] | None, runs: Sequence[str] | None
) -> dict[str, dict[str, str]]:
    libraries = [ContenderRun.effective[("manifest", name)].as_string() for name in SHIPPED]
    facts = (DuelRun.id, DuelRun.node, DuelRun.method, DuelRun.device, DuelRun.host)
    duels = select(*facts)
    contenders = select(ContenderRun.duel_run, ContenderRun.framework, *libraries).join(
        DuelRun, DuelRun.id == ContenderRun.duel_run
    )
    contenders = contenders.where(ContenderRun.role.not_in(_PINNED))
    if campaign is not None:
        named = [campaign] if isinstance(campaign, str) else campaign
        duels = duels.where(DuelRun.campaign.in_(named))
        contenders = contenders.where(DuelRun.campaign.in_(named))
    if runs is not None:
        duels = duels.where(DuelRun.id.in_(runs))
        contenders = contenders.where(DuelRun.id.in_(runs))
    with engine.connect() as connection:  # a session makes its own rows of them first
        known = {row[0]: _of_machine(*row[1:]) for row in connection.execute(duels)}
        for duel_run, framework, *versions in connection.execute(contenders):
            if duel_run not in known:  # another process stored it a moment ago
                continue
            known[duel_run] |= _of_libraries(framework, versions)
    return known


def _of_machine(
    node: str, method: int, device: dict[str, Any], host: dict[str, Any]
) -> dict[str, str]:
    known = {
        "driver": device["driver"],
        "clock policy": device.get("clock_policy"),
        "kernel": host["system"],
        "node": node,
        METHOD_CONDITION: str(method),
        "host": name_cpus(host["cpu_model"], host["cpus"]) if device["kind"] == "gpu" else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _of_libraries(framework: str, versions: Collection[str | None]) -> dict[str, str]:
    """Versions of a framework's libraries. One that the step did not need is not loaded, so its
    version is unknown."""
    named = zip(SHIPPED, versions, strict=True)
    return {
        f"{name} of {framework}": version
        for name, version in named
        if version is not None and version[:1].isdigit()
    }

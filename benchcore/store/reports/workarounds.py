"""Workarounds over all campaigns: whether each is still needed, and what its flag costs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from packaging.version import Version
from sqlalchemy import ColumnElement, Engine, and_, select
from sqlalchemy.orm import Session

from benchcore.cell.failures.workarounds import WORKAROUNDS
from benchcore.planning.catalog import list_workloads, load_spec, options_of
from benchcore.store.models import ContenderRun, DuelRun, PairRatio
from benchcore.store.records import case_of
from benchcore.verdict.samples import swap_sides

_SERIES = (
    *(DuelRun.workload, DuelRun.case_name, DuelRun.track, DuelRun.device_fingerprint),
    ContenderRun.arm,
)
_HAS_LADDER = (ContenderRun.framework == "jax") & ContenderRun.ladder.is_not(None)
_SELECT_SERIES = select(*_SERIES).join(ContenderRun, ContenderRun.duel_run == DuelRun.id).distinct()
_FLAGS = {each.number: each.name for each in WORKAROUNDS if each.flags}

Row = Mapping[str, Any]
Crashed = Set[tuple[str, ...]]


def list_crashed(engine: Engine) -> Crashed:
    """The cases and arms that ever needed a crash ladder, by device."""
    with Session(engine) as session:
        return {tuple(row) for row in session.execute(_SELECT_SERIES.where(_HAS_LADDER))}


def list_workarounds(engine: Engine, campaign: str, crashed: Crashed) -> list[dict[str, Any]]:
    """One row per case and arm of the campaign that is one of `crashed`, as `list_crashed` has it.

    `still_needed` has the versions that need the workaround, and those that no longer do, each by
    its newest run. `cost` is the cost of the newest workaround flag where it isn't needed, as a
    factor of time with its interval (None = not measured, or no flag); `cost_command` measures it.
    `highest` and `hlo` are those of the newest ladder.
    """
    if not crashed:
        return []
    own = _read_runs(engine, DuelRun.campaign == campaign)
    keys = {_key(each) for each in own} & crashed
    series = [
        _read_runs(
            engine, and_(*(column == part for column, part in zip(_SERIES, key, strict=True)))
        )
        for key in keys
    ]
    series.sort(key=lambda runs: (runs[0]["started_at"], runs[0]["id"], runs[0]["position"]))
    return [_describe(engine, runs, own) for runs in series]


def _read_runs(engine: Engine, condition: ColumnElement[bool]) -> list[Row]:
    """JAX contender runs, oldest first: their status shows whether a workaround is needed."""
    query = (
        select(
            DuelRun.id,
            DuelRun.campaign,
            DuelRun.started_at,
            DuelRun.device,
            *_SERIES,
            ContenderRun.position,
            ContenderRun.name,
            ContenderRun.version,
            ContenderRun.status,
            ContenderRun.ladder,
        )
        .join(ContenderRun, ContenderRun.duel_run == DuelRun.id)
        .where(ContenderRun.framework == "jax", condition)
        .order_by(DuelRun.started_at, DuelRun.id, ContenderRun.position)
    )
    with Session(engine) as session:
        return [dict(each._mapping) for each in session.execute(query)]


def _key(life: Row) -> tuple[str, ...]:
    return tuple(life[column.key] for column in _SERIES)


def _describe(engine: Engine, of_series: Sequence[Row], own: Iterable[Row]) -> dict[str, Any]:
    last = [each for each in of_series if each["ladder"]][-1]
    ladder = last["ladder"]
    avoided = [each for each in of_series if each["ladder"] and each["ladder"]["helped"]]
    number = avoided[-1]["ladder"]["helped"] if avoided else None
    workaround = next((each for each in WORKAROUNDS if each.number == number), None)
    flag = _FLAGS.get(number or 0)
    hlo = ladder["hlo"]
    folder = f"campaigns/{last['campaign']}/duels/{last['id']}/{hlo['folder']}" if hlo else None
    version = (avoided or of_series)[-1]["version"]
    return {
        "case": case_of(last),
        "arm": last["arm"],
        "workaround": workaround.describe() if workaround else None,
        "still_needed": describe_workaround_status(
            VersionOutcome(
                version=each["version"], status=each["status"], used_ladder=bool(each["ladder"])
            )
            for each in of_series
        ),
        "highest": None if ladder["highest"] is None else ladder["highest"]["status"],
        "cost": _find_cost(engine, last, flag) if flag else None,
        "cost_command": _write_command(last, own, version, flag) if flag else None,
        "hlo": folder,
        "hlo_command": hlo["command"] if hlo else None,
    }


def _find_cost(engine: Engine, life: Row, flag: str) -> dict[str, Any] | None:
    """The cost of a flag, from the newest ratio that counts of an arm with and without the flag, on
    this device."""
    arms = (life["arm"], f"{life['arm']}-workaround-{flag}")
    query = (
        select(DuelRun, PairRatio)
        .join(PairRatio, PairRatio.duel_run == DuelRun.id)
        .where(
            DuelRun.device_fingerprint == life["device_fingerprint"],
            PairRatio.counts,
            PairRatio.a_arm.in_(arms),
            PairRatio.b_arm.in_(arms),
            PairRatio.a_arm != PairRatio.b_arm,
            PairRatio.a_version == PairRatio.b_version,
        )
        .order_by(DuelRun.started_at.desc(), DuelRun.id.desc(), PairRatio.a.desc())
    )
    with Session(engine) as session:
        found = session.execute(query.limit(1)).first()
    if found is None:
        return None
    duel, ratio = found
    logs = [ratio.log_ratio, ratio.low, ratio.high]
    if ratio.a_arm != life["arm"]:
        logs = [*swap_sides(*logs)]
    factor, low, high = (round(math.exp(each), 4) for each in logs)
    cost = {"factor": factor, "low": low, "high": high, "verdict": ratio.verdict}
    named = {name: getattr(duel, name) for name in ("workload", "case_name", "track")}
    return {**cost, "case": case_of(named), "version": ratio.a_version}


def _write_command(life: Row, own: Iterable[Row], version: str, flag: str) -> str | None:
    """A command that measures the flag on a case of a campaign's `own` without the crash; None =
    there is none.

    Prefers the same case of another workload. Not every workload has the setting `workaround`.
    """
    healthy = [
        each
        for each in own
        if (each["arm"], each["version"], each["status"]) == (life["arm"], version, "ok")
        and each["device_fingerprint"] == life["device_fingerprint"]
        and each["workload"] in list_workloads()
        and each["case_name"] in load_spec(each["workload"]).cases
        and "workaround" in options_of(each["workload"], "jax")
    ]
    if not healthy:
        return None
    sibling = min(
        healthy,
        key=lambda each: (
            each["case_name"] != life["case_name"],
            each["workload"] == life["workload"],
        ),
    )
    side = f"jax=={version}"
    words = ("deadheat", "compare", sibling["workload"], "--case", sibling["case_name"])
    sides = ("--a", side, "--b", side, "--b-set", f"workaround={flag}")
    return shlex.join((*words, *sides, "--device", life["device"]["name"]))


@dataclass(frozen=True, kw_only=True)
class VersionOutcome:
    """How one contender of a version ended in one duel, which begins without a workaround."""

    version: str
    status: str
    used_ladder: bool
    """Whether it crashed in a way that starts the crash ladder."""


def describe_workaround_status(runs: Iterable[VersionOutcome]) -> str:
    """`needed with 0.10.1, no longer with 0.10.2`: for one case and arm, oldest first.

    A version that needed it in only some of its runs has their number. Other ends (out of
    memory, time-out) show nothing about the crash.
    """
    ends: dict[str, list[str]] = {}
    for life in runs:
        end = _end(life)
        if end:
            ends.setdefault(life.version, []).append(end)
    needs = {version: ends[version][-1] for version in sorted(ends, key=Version)}
    needing = [version for version, word in needs.items() if word != "not needed"]
    parts: list[str] = []
    for word, versions in _in_runs(needs):
        if word == "not needed" and needing and Version(versions[0]) > Version(needing[-1]):
            word = "no longer"
        named = " and ".join(_name(version, ends[version]) for version in versions)
        parts.append(f"{word} with {named}")
    return ", ".join(parts) or "unknown"


def _end(life: VersionOutcome) -> str | None:
    if life.used_ladder:
        return "needed" if life.status == "workaround" else "nothing helps"
    return "not needed" if life.status == "ok" else None


def _in_runs(needs: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Groups of neighbouring versions with the same status."""
    runs: list[tuple[str, list[str]]] = []
    for version, word in needs.items():
        if runs and runs[-1][0] == word:
            runs[-1][1].append(version)
        else:
            runs.append((word, [version]))
    return runs


def _name(version: str, ends: Sequence[str]) -> str:
    """`0.10.1`, or `0.10.1 (in 2 of 3 runs)` where they differed."""
    same = sum(1 for each in ends if each == ends[-1])
    return version if same == len(ends) else f"{version} (in {same} of {len(ends)} runs)"

"""Workarounds over all campaigns: whether each is still needed, and what its cure costs others."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.version import Version
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.cell.failures.workarounds import WORKAROUNDS
from benchcore.planning.catalog import list_workloads, load_spec, options_of
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.models import ContenderRun, DuelRun
from benchcore.verdict.samples import swap_sides

_SERIES = ("workload", "case_name", "track", "device_fingerprint", "arm")
_CURES = {rung.number: rung.name for rung in WORKAROUNDS if rung.flags}

Row = Mapping[str, Any]


def list_workarounds(engine: Engine, campaign: str) -> list[dict[str, Any]]:
    """One row a case and arm of the campaign that ever climbed a crash ladder on this device.

    `needs` says with which versions its workaround was needed, each by its newest run, and with
    which no longer; `price` is what its newest cure costs who does not need it, as a factor of
    time with its interval (None = not measured, or no flag), and `price_command` measures that.
    `highest` and `hlo` are those of the newest ladder.
    """
    lives = _read_lives(engine)
    climbed = {_key(each) for each in lives if each["ladder"]}
    here = {_key(each) for each in lives if each["campaign"] == campaign}
    rows = []
    for key in dict.fromkeys(_key(each) for each in lives):
        if key in climbed & here:
            of_series = [each for each in lives if _key(each) == key]
            rows.append(_describe(engine, of_series, lives, campaign))
    return rows


def _read_lives(engine: Engine) -> list[Row]:
    """Every contender run that says whether a cure is needed, oldest first."""
    columns = (*(getattr(DuelRun, name) for name in _SERIES[:4]), ContenderRun.arm)
    query = (
        select(
            DuelRun.id,
            DuelRun.campaign,
            DuelRun.device,
            *columns,
            ContenderRun.name,
            ContenderRun.version,
            ContenderRun.status,
            ContenderRun.ladder,
        )
        .join(ContenderRun, ContenderRun.duel_run == DuelRun.id)
        .where(ContenderRun.framework == "jax")
        .order_by(DuelRun.started_at, DuelRun.id, ContenderRun.position)
    )
    with Session(engine) as session:
        return [dict(each._mapping) for each in session.execute(query)]


def _key(life: Row) -> tuple[str, ...]:
    return tuple(life[name] for name in _SERIES)


def _describe(
    engine: Engine, of_series: Sequence[Row], lives: Iterable[Row], campaign: str
) -> dict[str, Any]:
    last = [each for each in of_series if each["ladder"]][-1]
    ladder = last["ladder"]
    cured = [each for each in of_series if each["ladder"] and each["ladder"]["cure"]]
    number = cured[-1]["ladder"]["cure"] if cured else None
    rung = next((rung for rung in WORKAROUNDS if rung.number == number), None)
    cure = _CURES.get(number or 0)
    hlo = ladder["hlo"]
    folder = f"campaigns/{last['campaign']}/duels/{last['id']}/{hlo['folder']}" if hlo else None
    version = (cured or of_series)[-1]["version"]
    return {
        "case": _name_case(last),
        "arm": last["arm"],
        "cure": rung.describe() if rung else None,
        "needs": describe_workaround_status(
            VersionOutcome(
                version=each["version"], status=each["status"], climbed=bool(each["ladder"])
            )
            for each in of_series
        ),
        "highest": None if ladder["highest"] is None else ladder["highest"]["status"],
        "price": _find_price(engine, last, cure) if cure else None,
        "price_command": _write_command(last, lives, campaign, version, cure) if cure else None,
        "hlo": folder,
        "hlo_command": hlo["command"] if hlo else None,
    }


def _find_price(engine: Engine, life: Row, cure: str) -> dict[str, Any] | None:
    """Of the newest ratio that counts between an arm and itself with the cure, on this device."""
    ratios = ratio_frame(engine)
    arms = {life["arm"], f"{life['arm']}-cure-{cure}"}
    for row in reversed(ratios.to_dict("records")):
        same = row["device_fingerprint"] == life["device_fingerprint"] and row["counts"]
        if same and {row["a_arm"], row["b_arm"]} == arms and row["a_version"] == row["b_version"]:
            logs = [row["log_ratio"], row["low"], row["high"]]
            if row["a_arm"] != life["arm"]:
                logs = [*swap_sides(*logs)]
            factor, low, high = (round(math.exp(each), 4) for each in logs)
            price = {"factor": factor, "low": low, "high": high, "verdict": row["verdict"]}
            return {**price, "case": _name_case(row), "version": row["a_version"]}
    return None


def _write_command(
    life: Row, lives: Iterable[Row], campaign: str, version: str, cure: str
) -> str | None:
    """On a healthy sibling: what the same contender did clean in this campaign; None = nothing.

    The same case of another workload first; not every workload takes cures.
    """
    healthy = [
        each
        for each in lives
        if each["campaign"] == campaign
        and (each["arm"], each["version"], each["status"]) == (life["arm"], version, "ok")
        and each["device_fingerprint"] == life["device_fingerprint"]
        and each["workload"] in list_workloads()
        and each["case_name"] in load_spec(each["workload"]).cases
        and "cure" in options_of(each["workload"], "jax")
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
    sides = ("--a", side, "--b", side, "--b-set", f"cure={cure}")
    return shlex.join((*words, *sides, "--device", life["device"]["name"]))


def _name_case(row: Row) -> str:
    track = "" if row["track"] == "default" else f" ({row['track']})"
    return f"{row['workload']} {row['case_name']}{track}"


@dataclass(frozen=True, kw_only=True)
class VersionOutcome:
    """How one contender of a version ended in one duel; every duel begins without a cure."""

    version: str
    status: str
    climbed: bool
    """Whether it crashed as crash ladders are for."""


def describe_workaround_status(lives: Iterable[VersionOutcome]) -> str:
    """`needed with 0.10.1, no longer with 0.10.2`: of one case and arm, given oldest first.

    A version that needed it in some of its runs only says on how many. Whoever ended otherwise
    (out of memory, late) says nothing of the crash.
    """
    ends: dict[str, list[str]] = {}
    for life in lives:
        end = _end(life)
        if end:
            ends.setdefault(life.version, []).append(end)
    said = {version: ends[version][-1] for version in sorted(ends, key=Version)}
    needing = [version for version, word in said.items() if word != "not needed"]
    parts: list[str] = []
    for word, versions in _in_runs(said):
        if word == "not needed" and needing and Version(versions[0]) > Version(needing[-1]):
            word = "no longer"
        named = " and ".join(_name(version, ends[version]) for version in versions)
        parts.append(f"{word} with {named}")
    return ", ".join(parts) or "not told"


def _end(life: VersionOutcome) -> str | None:
    if life.climbed:
        return "needed" if life.status == "workaround" else "nothing helps"
    return "not needed" if life.status == "ok" else None


def _in_runs(said: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Groups of neighbouring versions with the same status."""
    runs: list[tuple[str, list[str]]] = []
    for version, word in said.items():
        if runs and runs[-1][0] == word:
            runs[-1][1].append(version)
        else:
            runs.append((word, [version]))
    return runs


def _name(version: str, ends: Sequence[str]) -> str:
    """`0.10.1`, or `0.10.1 (in 2 of 3 runs)` where they differed."""
    same = sum(1 for each in ends if each == ends[-1])
    return version if same == len(ends) else f"{version} (in {same} of {len(ends)} runs)"

"""Reads what the pages of campaigns show. Nothing of another campaign is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from benchcore.errors import UserError
from benchcore.names import FRAMEWORK_NAMES
from benchcore.planning.matrix import Plan
from benchcore.protocol import COMPARED
from benchcore.running.plans import Kind, load_campaign, name_kind, progress_log
from benchcore.running.progress import ProgressReader
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import duel_frame, equivalence_frame, failed_check_frame
from benchcore.store.frames.epochs import epoch_frame
from benchcore.store.frames.profiles import (
    Profiles,
    bottleneck_frame,
    profile_frame,
    read_profiles,
)
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.frames.raw_times import read_raw_times
from benchcore.store.frames.reading import drop_calibration_runs
from benchcore.store.history.series import ROLLING
from benchcore.store.metric_values import Amounts, read_campaign_errors
from benchcore.store.reports.campaign import list_programs
from benchcore.store.reports.seeds import list_trainings
from benchcore.store.reports.void import list_void
from dashboards.frames import to_rows

_Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunTimes:
    """Seconds from its beginning to its last event, and those within duels; None = not logged."""

    wall_s: float | None
    measuring_s: float | None


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """One campaign's rows. `plan` is None where its file is gone or of another version."""

    name: str
    plan: Plan | None
    times: RunTimes
    runs: Sequence[str]
    """Its duel runs, oldest first."""
    errors: Amounts
    """What proofs measured of each contender against float64, by duel run and name."""
    raw: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """As `benchcore.store.frames.raw_times.read_raw_times` has it."""
    of_duels: Mapping[str, Mapping[str, list[dict[str, Any]]]]
    """The rows of each duel run: `duels`, `ratios`, `contenders`, `equivalence`, `failed_checks`,
    `profiles`, `bottlenecks`, `epochs`, `programs` and `trainings`. Campaigns that were read
    together share it."""
    void: str | None
    """Why nothing of it counts, in one sentence; None = something does."""
    docs: frozenset[str]
    """The pages of its Data Docs that were written, without their endings."""

    def rows(self, frame: str) -> list[dict[str, Any]]:
        """The rows of one kind, duel by duel."""
        of_frame = self.of_duels[frame]
        return [row for run in self.runs for row in of_frame.get(run, ())]

    @property
    def profile(self) -> str:
        """Its profile; "" without a plan."""
        return self.plan.profile if self.plan else ""

    @property
    def kind(self) -> Kind:
        """As `benchcore.running.plans.name_kind`."""
        return name_kind(self.name, self.profile)

    @property
    def first(self) -> dict[str, Any]:
        """Its first duel, for what all of them share."""
        return self.of_duels["duels"][self.runs[0]][0]

    @property
    def begun(self) -> datetime:
        """When its first duel began."""
        return self.first["started_at"]

    @property
    def ended(self) -> datetime:
        """When the last of its duels ended."""
        return max(row["ended_at"] for row in self.rows("duels"))

    @property
    def versions(self) -> dict[str, str]:
        """The newest version of each framework, by its name in words."""
        found = dict[str, str]()
        for row in self.rows("contenders"):
            if row["role"] in ROLLING and row["framework"] in COMPARED:
                found.setdefault(FRAMEWORK_NAMES[row["framework"]], str(row["version"]))
        return found


_AT_ONCE = 40
"""Campaigns that are read with one query per table."""


def read_campaigns(state: State, engine: Engine, names: Sequence[str]) -> Iterator[Campaign]:
    """The rows of each campaign, in this order. Raises UserError for one without results."""
    for first in range(0, len(names), _AT_ONCE):
        part = names[first : first + _AT_ONCE]
        profiles = read_profiles(engine, part)
        frames = _read_frames(engine, part, profiles)
        runs = defaultdict[str, list[str]](list)
        for run, name in frames["duels"][["duel_run", "campaign"]].to_numpy():
            runs[name].append(run)
        raw = read_raw_times(engine, part)
        programs = list_programs(engine, part, profiles)
        rows = {name: to_rows(frame) for name, frame in frames.items()}
        trainings = list_trainings(engine, part, rows["ratios"])
        errors = read_campaign_errors(engine, part)
        of_duels = {name: _group(each) for name, each in rows.items()}
        of_duels |= {"programs": _group(programs), "trainings": _group(trainings)}
        shared: dict[str, Any] = {"raw": raw, "of_duels": of_duels, "errors": errors}
        void = list_void(engine, part)
        for name in part:
            yield _make_campaign(state, name, runs[name], {**shared, "void": void.get(name)})


def _read_frames(
    engine: Engine, names: Sequence[str], profiles: Profiles
) -> dict[str, pd.DataFrame]:
    contenders = contender_frame(engine, names)
    return {
        "duels": duel_frame(engine, names),
        "ratios": ratio_frame(engine, names),
        "contenders": drop_calibration_runs(contenders),
        "equivalence": drop_calibration_runs(equivalence_frame(engine, names)),
        "failed_checks": drop_calibration_runs(failed_check_frame(engine, names)),
        "profiles": profile_frame(engine, names, profiles),
        "bottlenecks": bottleneck_frame(engine, names, contenders, profiles),
        "epochs": epoch_frame(engine, names),
    }


def _group(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict[str, list[dict[str, Any]]](list)
    for row in rows:
        found[row["duel_run"]].append(row)
    return found


def _make_campaign(
    state: State, name: str, runs: Sequence[str], read: Mapping[str, Any]
) -> Campaign:
    """`read` are the fields that come from the database."""
    if not runs:
        raise UserError(
            f"wanted results of campaign {name!r}, but the database holds none; "
            "run `deadheat ingest`, or measure it with `deadheat nightly`"
        )
    return Campaign(
        name=name,
        plan=_find_plan(state, name),
        times=time_last_run(ProgressReader(progress_log(state, name).path).read_new()),
        docs=frozenset(each.stem for each in state.data_docs(name).glob("*.html")),
        runs=runs,
        **read,
    )


def count_failed(contenders: Iterable[Mapping[str, Any]]) -> int:
    """How many contenders did not end well."""
    return sum(each["status"] != "ok" for each in contenders)


def _find_plan(state: State, name: str) -> Plan | None:
    try:
        return load_campaign(state, name)
    except UserError:
        return None


def time_last_run(events: Iterable[_Event]) -> RunTimes:
    """How long a campaign took, from its progress log: its last run that measured a duel, else its
    last one; None if the beginning was not logged."""
    runs: list[list[_Event]] = []
    for event in events:
        if (event.get("event"), event.get("what")) == ("campaign", "begun"):
            runs.append([])
        if runs:
            runs[-1].append(event)
    timed = [_time(each) for each in runs]
    measured = [each for each in timed if each.measuring_s]
    nothing = RunTimes(wall_s=None, measuring_s=None)
    return (measured or timed or [nothing])[-1]


def _time(run: Sequence[_Event]) -> RunTimes:
    times = [each["time"] for each in run if "time" in each]
    measuring, begun = 0.0, None
    for each in run:
        if each.get("event") == "duel":
            if each["what"] == "done" and begun is not None:
                measuring += each["time"] - begun
            begun = each["time"] if each["what"] == "begun" else None
    return RunTimes(wall_s=times[-1] - times[0], measuring_s=measuring)

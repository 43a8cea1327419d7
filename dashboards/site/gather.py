"""Reads what the pages of one campaign show. Nothing of another campaign is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from benchcore.demo import story
from benchcore.errors import UserError
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import PROFILES
from benchcore.progress import ProgressReader
from benchcore.running.plans import load_campaign, progress_log
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import duel_frame, equivalence_frame, failed_check_frame
from benchcore.store.frames.epochs import epoch_frame
from benchcore.store.frames.profiles import bottleneck_frame, profile_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.frames.reading import drop_calibration_runs
from benchcore.store.reports.campaign import list_programs
from benchcore.store.reports.void import explain_void
from dashboards.formatting import FRAMEWORKS
from dashboards.site.run_times import RunTimes, time_last_run

Kind = Literal["nightly", "release", "ad-hoc"]
_NIGHTS = {*PROFILES, story.PROFILE}


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """One campaign's rows. `plan` is None where its file is gone or of another version."""

    name: str
    plan: Plan | None
    times: RunTimes
    duels: pd.DataFrame
    ratios: pd.DataFrame
    contenders: pd.DataFrame
    equivalence: pd.DataFrame
    failed_checks: pd.DataFrame
    profiles: pd.DataFrame
    bottlenecks: pd.DataFrame
    epochs: pd.DataFrame
    programs: list[dict[str, Any]]
    void: str | None
    """Why nothing of it counts, in one sentence; None = something does."""

    @property
    def kind(self) -> Kind:
        """`nightly` for a profile's own campaign, `release` for a new version's."""
        profile = self.plan.profile if self.plan else ""
        if profile in _NIGHTS or (not profile and self.name.startswith("nightly-")):
            return "nightly"
        return "release" if profile == "release" else "ad-hoc"

    @property
    def first(self) -> dict[str, Any]:
        """Its first duel, for what all of them share."""
        return {str(key): value for key, value in self.duels.iloc[0].to_dict().items()}

    @property
    def versions(self) -> dict[str, str]:
        """The newest version of each framework, by its name in words."""
        newest = self.contenders.loc[self.contenders["role"].isin(("newest", "system"))]
        pairs = newest.drop_duplicates("framework")[["framework", "version"]].to_dict("records")
        return {
            FRAMEWORKS[each["framework"]]: str(each["version"])
            for each in pairs
            if each["framework"] in ("jax", "torch")
        }


def read_campaign(state: State, engine: Engine, name: str) -> Campaign:
    """A campaign's rows. Raises UserError if the database has no results of it."""
    duels = duel_frame(engine, name)
    if duels.empty:
        raise UserError(
            f"wanted results of campaign {name!r}, but the database holds none; "
            "run `deadheat ingest`, or measure it with `deadheat nightly`"
        )
    return Campaign(
        name=name,
        plan=_find_plan(state, name),
        times=time_last_run(ProgressReader(progress_log(state, name).path).read_new()),
        duels=duels,
        ratios=ratio_frame(engine, name),
        contenders=drop_calibration_runs(contender_frame(engine, name)),
        equivalence=drop_calibration_runs(equivalence_frame(engine, name)),
        failed_checks=drop_calibration_runs(failed_check_frame(engine, name)),
        profiles=profile_frame(engine, name),
        bottlenecks=bottleneck_frame(engine, name),
        epochs=epoch_frame(engine, name),
        programs=list_programs(engine, name),
        void=explain_void(engine, name),
    )


def count_failed(contenders: pd.DataFrame) -> int:
    """How many contenders did not end well."""
    return sum(status != "ok" for status in contenders["status"])


def _find_plan(state: State, name: str) -> Plan | None:
    try:
        return load_campaign(state, name)
    except UserError:
        return None

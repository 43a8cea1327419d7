"""Write the made-up year into a state folder: plans, documents, verdicts, findings, events."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from benchcore import variables
from benchcore.demo import story
from benchcore.demo.documents import DemoNight, make_document
from benchcore.errors import UserError
from benchcore.planning.calibration_runs import add_calibration_starts, number_tonight
from benchcore.planning.matrix import PlannedDuel, make_plan, save_plan
from benchcore.protocol import name_case
from benchcore.running.plans import campaign_folder
from benchcore.state import State, open_state
from benchcore.store.database import Engine
from benchcore.store.duels import judge_campaign, replace_failed_checks
from benchcore.store.incoming.ingest import insert_documents
from benchcore.store.records import FailedCheck

_MARK = "made-up.txt"
_BEGIN = time(22, 30, tzinfo=UTC)
_AT_ONCE = 30
"""Nights stored in one transaction."""


def open_demo(folder: Path) -> State:
    """A new state folder; one of an earlier demo is emptied. Raises UserError for any other."""
    if variables.DATABASE_URL.read():
        raise UserError(
            "wanted a database of the demo's own, but DEADHEAT_DATABASE_URL is set; unset it, so "
            "that made-up results don't get into a real database"
        )
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).is_file():
            raise UserError(
                f"wanted a new folder, or one of an earlier demo, got {str(folder)!r}, which has "
                "other files; choose another with --folder"
            )
        shutil.rmtree(folder)
    state = open_state(folder)
    (state.root / _MARK).write_text(story.MADE_UP + "\n", encoding="utf-8")
    return state


def read_mark(state: State) -> str:
    """What every page of a demo shows; "" = the state folder is not a demo's."""
    mark = state.root / _MARK
    return mark.read_text(encoding="utf-8").strip() if mark.is_file() else ""


def write_nights(state: State, engine: Engine, last: date, num_days: int) -> list[DemoNight]:
    """Store the nights until `last` with their verdicts; returns them, oldest first."""
    nights = [plan_night(last, days_ago) for days_ago in reversed(range(num_days))]
    for first in range(0, len(nights), _AT_ONCE):
        of_batch = nights[first : first + _AT_ONCE]
        for night in of_batch:
            save_plan(night.plan, campaign_folder(state, night.plan.campaign) / "plan.json")
        insert_documents(engine, [each for night in of_batch for each in list_documents(night)])
        campaigns = [night.plan.campaign for night in of_batch]
        failed = [each for night in of_batch for each in list_failed_checks(night)]
        replace_failed_checks(engine, campaigns, failed)
        judge_campaign(engine, *campaigns)
    return nights


def plan_night(last: date, days_ago: int) -> DemoNight:
    """The night so many days before the last one."""
    at = datetime.combine(last - timedelta(days=days_ago), _BEGIN)
    profile = story.make_profile(at, days_ago)
    plan = make_plan(
        profile,
        story.resolve_requests(days_ago),
        campaign=f"nightly-{story.PROFILE}-{at:%Y-%m-%d}",
        site="made-up",
    )
    plan = add_calibration_starts(plan, profile, number_tonight(profile, at.date()))
    return DemoNight(plan=replace(plan, notes=(story.MADE_UP,)), at=at, days_ago=days_ago)


def list_documents(night: DemoNight) -> Iterator[dict[str, Any]]:
    """The result documents of a night's duels."""
    for minute, duel in enumerate(night.plan.duels):
        yield make_document(night, duel, minute)


def _fail(
    duel: PlannedDuel, contender: str | None, other: str | None, check: Sequence[str]
) -> FailedCheck:
    suite, expectation, reason = check
    return FailedCheck(
        duel_run=duel.duel_run,
        contender=contender,
        other=other,
        suite=suite,
        expectation=expectation,
        reason=reason,
    )


def list_failed_checks(night: DemoNight) -> Iterator[FailedCheck]:
    """Crashes, a pair that is void, and now and then a duel with other inputs."""
    void, *check = story.VOID.get(night.days_ago, ("", "", "", ""))
    for duel in night.plan.duels:
        name = name_case(duel.workload, duel.case, duel.track)
        a, b = (each.name for each in duel.contenders[:2])
        if name == void:
            yield _fail(duel, a, b, check)
        if (night.days_ago, name) in story.CRASHES:
            yield _fail(duel, a, None, ("contenders", "finished", "it crashed in stage compile"))
    if night.days_ago % story.VOID_EVERY == 11:
        reason = "contenders worked on 2 different inputs, not 1"
        yield _fail(night.plan.duels[0], None, None, ("duels", "same inputs", reason))

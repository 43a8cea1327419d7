"""Before the first duel a busy machine is waited for, no longer than allowed, and named. What had
no environment is measured again once that is built, and what was set aside is never lost."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from result_documents import CAMPAIGN, JAX, OLD_JAX, TORCH, make_document, make_plan
from stored_histories import add_suspicion, store_history

from benchcore.planning.matrix import Plan, PlannedContender, PlannedDuel
from benchcore.protocol import DuelLimits, EnvironmentRecord
from benchcore.running import disturbances
from benchcore.running.disturbances import (
    read_foreign_share,
    recover_set_aside,
    restore_better_documents,
    set_aside_void,
    wait_for_quiet,
)
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import read_duels
from benchcore.store.ingest import ingest_spool
from tasks import campaign_run, pipeline

RUN = f"{1:016x}"
BUILT = EnvironmentRecord(
    name="torch-2",
    key="0" * 16,
    lock_sha256=None,
    python="python3",
    python_version="3.13.0",
    build="system",
    packages={},
)


@pytest.fixture
def plan() -> Plan:
    """One duel of two versions of JAX, and torch."""
    contenders = tuple(
        PlannedContender(name=each.name, arm=each.framework, release=each.name, settings={})
        for each in (JAX, OLD_JAX, TORCH)
    )
    duel = PlannedDuel(
        hash=RUN,
        duel_run=RUN,
        workload="mlp",
        case="tiny",
        track="default",
        device="cpu",
        seed=1,
        limits=DuelLimits(),
        expected_s=1.0,
        contenders=contenders,
    )
    return replace(make_plan(CAMPAIGN), duels=(duel,))


def _store_unbuilt(engine: Engine, state: State) -> None:
    """The duel's document, of when torch could not be built."""
    unbuilt = replace(TORCH, status="environment")
    store_history(engine, state, [make_document((JAX, OLD_JAX, unbuilt), duel_run=RUN)])


def test_a_duel_whose_environment_is_built_now_is_measured_again(
    engine: Engine, state: State, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_: Plan, request: str, __: State) -> EnvironmentRecord | str:
        assert request == TORCH.name, "the others were built then"
        return found

    monkeypatch.setattr(disturbances, "load_environment", load)
    _store_unbuilt(engine, state)
    found = "no space left"
    assert set_aside_void(state, plan) == []
    found = BUILT
    (aside,) = set_aside_void(state, plan)
    assert aside.reason == "its environment is built now"
    assert not (state.spool / CAMPAIGN / f"{RUN}.json").exists()
    store_history(engine, state, [make_document((JAX, OLD_JAX, TORCH), duel_run=RUN)])
    assert restore_better_documents(state, plan, [aside]) == []
    assert set_aside_void(state, plan) == []


def test_an_unbuilt_side_of_a_duel_that_a_suspicion_rests_on_stays(
    engine: Engine, state: State, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disturbances, "load_environment", lambda *_: BUILT)
    _store_unbuilt(engine, state)
    add_suspicion(engine, RUN)
    assert set_aside_void(state, plan) == []


def test_documents_set_aside_by_a_run_that_was_killed_come_back(
    engine: Engine, state: State, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disturbances, "load_environment", lambda *_: BUILT)
    _store_unbuilt(engine, state)
    assert recover_set_aside(state, plan) == []
    (aside,) = set_aside_void(state, plan)
    for number in (2, 10):  # the newest is another one than the last by name
        aside.path.with_name(f"{RUN}.{number}.json").write_bytes(aside.path.read_bytes())
    newest = aside.path.with_name(f"{RUN}.10.json")
    assert recover_set_aside(state, plan) == ["mlp tiny"]
    assert not newest.exists() and aside.path.exists()
    assert ingest_spool(engine, state, only_new=True).ingested == (RUN,)
    assert recover_set_aside(state, plan) == [], "it is not lacking"


def test_a_campaign_recovers_what_was_set_aside_before_it_begins(
    engine: Engine, state: State, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Begun(Exception):
        """The campaign provisions its environments."""

    def begin(*_: object, **__: object) -> None:
        raise Begun

    monkeypatch.setattr(disturbances, "load_environment", lambda *_: BUILT)
    monkeypatch.setattr(campaign_run, "load_campaign", lambda *_: plan)
    monkeypatch.setattr(campaign_run, "_warn", lambda _: None)
    monkeypatch.setattr(pipeline, "ingest_results", pipeline.ingest_results.fn)
    monkeypatch.setattr(pipeline, "provision_environment", SimpleNamespace(map=begin))
    _store_unbuilt(engine, state)
    assert set_aside_void(state, plan) and not read_duels(engine, CAMPAIGN)
    with pytest.raises(Begun):
        campaign_run.run_campaign(CAMPAIGN, str(state.root))
    assert [each.duel_run for each in read_duels(engine, CAMPAIGN)] == [RUN]


def _wait(shares: list[float | None], limit_s: float) -> tuple[bool, list[str], list[float]]:
    reports, pauses = list[str](), list[float]()
    shown = iter(shares)
    quiet = wait_for_quiet(limit_s, reports.append, read=lambda: next(shown), pause=pauses.append)
    return quiet, reports, pauses


def test_a_quiet_machine_is_not_mentioned() -> None:
    assert _wait([0.1], 600) == (True, [], [])
    assert _wait([None], 600) == (True, [], [])


def test_a_busy_machine_is_waited_for() -> None:
    quiet, reports, pauses = _wait([0.6, 0.38, 0.05], 600)
    assert quiet and pauses == [10, 10]
    assert reports[0].startswith("the machine is busy: others use 60% of its CPUs (load ")
    assert reports[1].endswith("; waiting for at most 590 s more")


def test_it_waits_no_longer_than_allowed() -> None:
    quiet, reports, pauses = _wait([0.6, 0.6, 0.6], 15)
    assert not quiet and pauses == [10, 5]
    assert "after 15 s" in reports[-1]
    assert not _wait([0.6], 0)[0]


def test_the_share_of_this_machine_is_a_share() -> None:
    share = read_foreign_share()
    assert share is None or 0.0 <= share <= 1.0

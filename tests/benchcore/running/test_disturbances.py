"""Before the first duel a busy machine is waited for, no longer than allowed, and named. What had
no environment is measured again once that is built, and what was set aside is never lost."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from result_documents import (
    CAMPAIGN,
    JAX,
    OLD_JAX,
    TORCH,
    make_document,
    make_plan,
    spool_document,
)
from stored_histories import add_suspicion, store_history

from benchcore.planning.matrix import Plan, PlannedContender, PlannedDuel
from benchcore.protocol import DuelLimits, EnvironmentRecord
from benchcore.running import disturbances
from benchcore.running.disturbances import (
    is_set_aside,
    read_foreign_share,
    recover_set_aside,
    restore_better_documents,
    set_aside_void,
    wait_for_quiet,
)
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import read_duels, remove_duel
from benchcore.store.incoming.ingest import ingest_spool
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


def _make_worse() -> dict[str, Any]:
    """The duel's document, all of it disturbed."""
    document = make_document((JAX, OLD_JAX, TORCH), duel_run=RUN)
    for contender in document["contenders"]:
        for block in (block for start in contender["starts"] for block in start["blocks"]):
            block["telemetry"]["foreign_cpu_share"] = 0.9
    return document


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
    assert restore_better_documents(state, plan) == []
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
    for number in (2, 10):  # an earlier run compared these with what it measured
        aside.path.with_name(f"{RUN}.{number}.json").write_bytes(aside.path.read_bytes())
    newest = aside.path.with_name(f"{RUN}.10.json")  # another one than the last by name
    path = state.spool / CAMPAIGN / f"{RUN}.json"
    for lacking in (aside.path, newest):
        path.unlink(missing_ok=True)
        assert recover_set_aside(state, plan) == ["mlp tiny"]
        assert path.exists() and not lacking.exists()
    assert ingest_spool(engine, state, only_new=True).ingested == (RUN,)
    assert recover_set_aside(state, plan) == [], "it is not lacking"


@pytest.mark.parametrize("killed", ["before it is compared", "as it is put back"])
def test_a_better_document_of_a_run_that_was_killed_comes_back(
    killed: str, engine: Engine, state: State, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second measurement was disturbed throughout. The next run must not compare it with a
    third one alone."""
    monkeypatch.setattr(disturbances, "load_environment", lambda *_: BUILT)
    _store_unbuilt(engine, state)
    path = state.spool / CAMPAIGN / f"{RUN}.json"
    better = path.read_bytes()
    (aside,) = set_aside_void(state, plan)
    assert not is_set_aside(state, replace(plan, duels=())), "its duel is planned no more"
    store_history(engine, state, [_make_worse()])
    if killed == "as it is put back":
        remove_duel(engine, RUN)
        path.rename(aside.path.with_name(f"{RUN}.2.json"))
        assert recover_set_aside(state, plan) == ["mlp tiny"]
    else:
        assert recover_set_aside(state, plan) == [] and is_set_aside(state, plan)
        assert restore_better_documents(state, plan) == ["mlp tiny"]
    assert path.read_bytes() == better and not is_set_aside(state, plan)
    assert ingest_spool(engine, state, only_new=True).ingested == (RUN,)


def test_a_duel_of_a_running_shard_is_left_to_it(
    engine: Engine, state: State, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its document would replace one that was put back, and the shard would report one lost that
    was set aside."""
    monkeypatch.setattr(disturbances, "load_environment", lambda *_: BUILT)
    monkeypatch.setattr(disturbances, "load_site", lambda _: SimpleNamespace(kind="slurm"))
    running = [SimpleNamespace(duel_runs=(RUN,))]
    monkeypatch.setattr(disturbances, "list_open_shards", lambda *_: running)
    _store_unbuilt(engine, state)
    assert set_aside_void(state, plan) == []
    running.clear()
    assert set_aside_void(state, plan)
    running.append(SimpleNamespace(duel_runs=(RUN,)))
    assert recover_set_aside(state, plan) == restore_better_documents(state, plan) == []
    running.clear()
    assert restore_better_documents(state, plan) == ["mlp tiny"], "the shard did not measure it"


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
    path = state.spool / CAMPAIGN / f"{RUN}.json"
    better = path.read_bytes()
    for killed in ("before it measured again", "before it compared"):
        assert set_aside_void(state, plan) and not read_duels(engine, CAMPAIGN)
        if killed == "before it compared":
            spool_document(state.spool, _make_worse())
        with pytest.raises(Begun):
            campaign_run.run_campaign(CAMPAIGN, str(state.root))
        assert [each.duel_run for each in read_duels(engine, CAMPAIGN)] == [RUN]
        assert path.read_bytes() == better


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
    assert reports[0].startswith("the machine is busy: others use 60 % of its CPUs (load ")
    assert reports[1].endswith("; waiting for at most 590 s more")


def test_it_waits_no_longer_than_allowed() -> None:
    quiet, reports, pauses = _wait([0.6, 0.6, 0.6], 15)
    assert not quiet and pauses == [10, 5]
    assert "after 15 s" in reports[-1]
    assert not _wait([0.6], 0)[0]


def test_the_share_of_this_machine_is_a_share() -> None:
    share = read_foreign_share()
    assert share is None or 0.0 <= share <= 1.0

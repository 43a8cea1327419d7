"""Updates of a campaign's W&B run while it is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect import flow
from prefect.states import Completed
from result_documents import CAMPAIGN, make_document, make_plan, spool_document

from benchcore.state import State, open_state
from tasks import live_updates
from tasks.campaign_run import _measure_all
from tasks.live_updates import LiveUpdates

pytestmark = pytest.mark.usefixtures("prefect_api")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setenv("DEADHEAT_WANDB", "team/dead-heat")
    monkeypatch.setattr(live_updates, "PAUSE_S", 0.0)
    return open_state(tmp_path / "state")


def _measure(state: State, number: int) -> None:
    spool_document(state.spool, make_document(duel_run=f"{number:016x}", starts=1, rounds=1))


def test_each_duel_is_sent_once_after_it_ended_and_a_bad_document_is_reported(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(live_updates, "write_progress", lambda s, name, limit: written.append(name))
    monkeypatch.setattr(live_updates, "send_runs", lambda s, limit: None)

    @flow
    def measures() -> list[str]:
        live = LiveUpdates(CAMPAIGN, str(state.root))
        live.update()
        for number in (1, 2):
            _measure(state, number)
            live.update()
            live.update()
        (state.spool / CAMPAIGN / "bad.json").write_text("{")
        live.update()
        monkeypatch.setattr(live_updates, "PAUSE_S", 60.0)
        _measure(state, 3)
        live.update()
        return live.rejected

    (reason,) = measures()
    assert written == [CAMPAIGN] * 3
    assert "bad.json" in reason


def test_after_an_update_that_fails_there_is_no_other_and_the_flow_goes_on(
    state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(live_updates, "write_progress", lambda s, name, limit: tried.append(name))
    monkeypatch.setattr(live_updates, "send_runs", lambda s, limit: "not done within 30 s")

    @flow
    def measures() -> str:
        live = LiveUpdates(CAMPAIGN, str(state.root))
        for number in (1, 2):
            _measure(state, number)
            live.update()
        return "went on"

    assert (measures(), tried) == ("went on", [CAMPAIGN])
    assert "not done within 30 s; this campaign is sent at its end" in caplog.text


def test_without_a_project_nothing_is_ingested_early(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEADHEAT_WANDB")
    _measure(state, 1)
    LiveUpdates(CAMPAIGN, str(state.root)).update()  # a task outside a flow would fail
    assert not (state.root / "deadheat.db").exists()


def test_an_update_comes_between_two_duels(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def measure(title: str, duel_run: str, **_: object) -> object:
        order.append(title)
        return Completed()

    monkeypatch.setattr("tasks.campaign_run.measurement.measure_duel", measure)
    monkeypatch.setattr("tasks.campaign_run.list_campaign_proofs", lambda plan, state: [])
    duels: Any = tuple(SimpleNamespace(title=each, duel_run=each) for each in ("one", "two"))
    plan = replace(make_plan(CAMPAIGN), duels=duels)
    assert _measure_all(plan, state, lambda: order.append("update")) == []
    assert order == ["one", "update", "two", "update"]

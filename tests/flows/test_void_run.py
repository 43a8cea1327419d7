"""Prefect's state of a night: `Void` and failed, with the reason, where nothing counts."""

from __future__ import annotations

import asyncio
import importlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import prefect.runtime
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from result_documents import DUEL_RUN, make_document, make_plan, spool_document

from benchcore.errors import CampaignIncompleteError
from benchcore.experiments.alerting.alerts import PAYLOAD
from benchcore.planning.matrix import save_plan
from benchcore.running.plans import campaign_folder, name_night
from benchcore.state import open_state
from tasks import campaign_run, pipeline
from tasks.campaign_run import VOID, read_outcome

pytestmark = pytest.mark.usefixtures("prefect_api")
NIGHTLY = importlib.import_module("flows.nightly")  # whose name in `flows` is that of its flow
BUSY = "Nothing counts: the machine was busy. Other processes used 38 to 62 % of its CPUs."


def _run_night(
    ended: dict[str, Any] | Exception,
    monkeypatch: pytest.MonkeyPatch,
    called: list[str] | None = None,
    **given: Any,
) -> Any:
    """The state of a night that measures nothing but ends so; what it `called`."""
    module = NIGHTLY
    called = [] if called is None else called

    def run(campaign: str, *_: Any, **__: Any) -> dict[str, Any]:
        called.append(campaign)
        if isinstance(ended, Exception):
            raise ended
        return ended

    monkeypatch.setattr(module, "run_campaign", run)
    monkeypatch.setattr(module.pipeline, "plan_campaign", lambda *_, **__: None)
    for name in ("report_void", "report_suspicions", "prune_state"):
        monkeypatch.setattr(module.pipeline, name, lambda *_, name=name, **__: called.append(name))
    return module.nightly(profile="ci", return_state=True, **{"campaign": "void-night", **given})


def test_a_lost_duel_keeps_no_suspicion_from_being_confirmed_and_no_file_from_being_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    monkeypatch.setenv("DEADHEAT_KEEP_NIGHTS", "7")
    called = list[str]()
    ended = _run_night(CampaignIncompleteError("mlp infer: lost"), monkeypatch, called)
    assert ended.is_failed() and "mlp infer: lost" in str(ended.message)
    assert called == ["void-night", "report_suspicions", "prune_state"]


def test_a_lost_duel_keeps_no_void_night_from_being_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured is only a pair that disagrees."""
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    monkeypatch.delenv("DEADHEAT_KEEP_NIGHTS", raising=False)
    state = open_state(tmp_path)
    document = make_document(campaign="void-night", agrees=False)
    spool_document(state.spool, document)
    plan = replace(make_plan("void-night"), duels=(SimpleNamespace(duel_run=DUEL_RUN),))
    save_plan(make_plan("void-night"), campaign_folder(state, "void-night") / "plan.json")
    for name, result in (("_measure_all", ["mlp infer: lost"]), ("_await_quiet", None)):
        monkeypatch.setattr(campaign_run, name, lambda *_, result=result: result)
    monkeypatch.setattr(campaign_run, "load_campaign", lambda *_: plan)
    monkeypatch.setattr(campaign_run, "set_aside_void", lambda *_: [])
    monkeypatch.setattr(campaign_run, "show_progress", lambda *_: nullcontext(lambda: None))
    monkeypatch.setattr(NIGHTLY.pipeline, "plan_campaign", lambda *_, **__: None)
    emitted, sent = list[str](), list[str]()
    monkeypatch.setattr(pipeline, "emit_event", lambda event, **_: emitted.append(event))
    monkeypatch.setattr(pipeline, "send_alert", lambda key, *_: sent.append(key))
    ended = NIGHTLY.nightly(profile="ci", campaign="void-night", return_state=True)
    assert ended.name == "Failed" and "mlp infer: lost" in str(ended.message)
    assert emitted == ["deadheat.night.void"] and sent == ["void-void-night"]


@pytest.mark.parametrize(
    ("timezone", "scheduled", "night"),
    [
        ("Europe/Berlin", "2027-03-28T00:00:00+00:00", "2027-03-28"),
        ("Europe/Berlin", "2027-03-28T23:00:00+00:00", "2027-03-29"),  # the same hour there
        ("Pacific/Auckland", "2026-11-26T13:00:00+00:00", "2026-11-27"),
        ("UTC", "2026-11-25T23:30:00+00:00", "2026-11-25"),  # it starts now, long after that
    ],
)
def test_two_nights_of_a_schedule_never_share_a_name(
    timezone: str, scheduled: str, night: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    moment = datetime.fromisoformat(scheduled)
    monkeypatch.setitem(vars(prefect.runtime.flow_run), "scheduled_start_time", moment)
    called, outcome = list[str](), {"campaign": "", "void": None}
    _run_night(outcome, monkeypatch, called, campaign=None, timezone=timezone)
    assert called[0] == f"nightly-ci-{night}"


def test_a_night_that_nobody_scheduled_has_the_date_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    called, outcome, before = list[str](), {"campaign": "", "void": None}, name_night("ci")
    _run_night(outcome, monkeypatch, called, campaign=None)
    assert called[0] in (before, name_night("ci"))
    refused = _run_night(outcome, monkeypatch, timezone="Mars/Base")
    assert refused.is_failed() and "wanted a time zone such as" in str(refused.message)


def test_prefect_shows_a_void_night_as_failed_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    outcome = {"campaign": "void-night", "void": BUSY, "ratios": []}
    ended = _run_night(outcome, monkeypatch)
    with get_client(sync_client=True) as client:
        shown = client.read_flow_run(ended.state_details.flow_run_id).state
    assert shown is not None
    assert (shown.name, shown.type, shown.message) == (VOID, StateType.FAILED, BUSY)
    assert read_outcome(ended) == outcome  # what the command prints

    async def read() -> dict[str, Any]:
        return read_outcome(ended)

    with ThreadPoolExecutor(1) as pool:  # also where a loop runs
        assert pool.submit(asyncio.run, read()).result() == outcome

    ended = _run_night({**outcome, "void": None}, monkeypatch)
    assert ended.is_completed() and ended.name == "Completed"
    assert read_outcome(ended) == {**outcome, "void": None}

    ended = _run_night(CampaignIncompleteError("no duel left a result"), monkeypatch)
    assert ended.name == "Failed"
    with pytest.raises(CampaignIncompleteError, match="no duel left"):
        read_outcome(ended)


def test_the_event_of_a_void_night_has_the_payload_of_every_alert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, emitted = open_state(tmp_path), list[dict[str, Any]]()
    save_plan(make_plan("void-night"), campaign_folder(state, "void-night") / "plan.json")
    monkeypatch.setattr(pipeline, "emit_event", lambda *_, **named: emitted.append(named))
    monkeypatch.setattr(pipeline, "send_alert", lambda *_: None)
    outcome = {"campaign": "void-night", "void": BUSY, "dashboard": "index.html"}
    pipeline.report_void(outcome, str(tmp_path))
    payload = emitted[0]["payload"]
    assert set(PAYLOAD) < set(payload)
    assert (payload["text"], payload["dashboard"]) == (BUSY, state.link_page("void-night"))
    assert payload["again"].startswith("deadheat nightly --profile ")
    assert payload["again"].endswith(" --campaign void-night")

"""Alerts reach the addresses that only the server knows, and wait for no picture."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prefect.blocks.system import Secret
from prefect.blocks.webhook import Webhook
from result_documents import JAX, TORCH, make_history, make_plan
from stored_histories import FOUND, open_history, store_history
from typer.testing import CliRunner
from webhooks import serve_webhook

from benchcore.experiments.alerting.outbox import has_waiting, queue_alert
from benchcore.planning.matrix import save_plan
from benchcore.running.plans import campaign_folder
from benchcore.state import State
from benchcore.store.history.events import record_sent, store_finding
from benchcore.store.history.suspicions import refresh_suspicions
from flows.cli.main import app
from tasks import alerts, pipeline
from tasks.alerts import BLOCK, WEBHOOK_BLOCK, alert, load_webhook
from tasks.artifacts import WAITED
from tasks.pipeline import end_night

pytestmark = pytest.mark.usefixtures("prefect_api")


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What is posted to the webhook that was set for `deadheat deploy`, and not for the worker."""
    for name in ("DEADHEAT_WEBHOOK_URL", "DEADHEAT_NOTIFY"):
        monkeypatch.setenv(name, "")  # to be restored
        monkeypatch.delenv(name)
    with serve_webhook() as (url, received):
        Webhook(url=url).save(WEBHOOK_BLOCK, overwrite=True, **WAITED)  # type: ignore[arg-type]
        yield received
    Webhook.delete(WEBHOOK_BLOCK, **WAITED)


def test_a_worker_posts_to_the_webhook_that_the_server_stores(
    state: State, posted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    alert.fn("void-night", "Nothing counts", {"campaign": "night"}, str(state.root))
    assert posted == [{"text": "Nothing counts", "campaign": "night"}]
    with serve_webhook() as (url, own):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
        alert.fn("void-next-night", "Nothing counts again", {}, str(state.root))
    assert len(own) == len(posted) == 1


def test_people_get_an_alert_at_the_addresses_of_the_server_s_secret_block(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As apprise writes them; the variable, where it is set, replaces them."""
    for name in ("DEADHEAT_WEBHOOK_URL", "DEADHEAT_NOTIFY"):
        monkeypatch.setenv(name, "")  # to be restored
        monkeypatch.delenv(name)
    with serve_webhook() as (stored, team), serve_webhook() as (own, me):
        Secret(value=stored.replace("http", "json")).save(BLOCK, overwrite=True, **WAITED)  # type: ignore[arg-type]
        alert.fn("void-night", "Nothing counts", {"again": "deadheat nightly"}, str(state.root))
        monkeypatch.setenv("DEADHEAT_NOTIFY", own.replace("http", "json"))
        alert.fn("void-next-night", "Nothing counts again", {}, str(state.root))
    Secret.delete(BLOCK, **WAITED)
    assert [each["message"] for each in team] == ["Nothing counts\nMeasure again: deadheat nightly"]
    assert [each["message"] for each in me] == ["Nothing counts again"]


def test_an_alert_that_the_server_s_webhook_refused_is_sent_at_the_end_of_the_next_night(
    state: State, posted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only with the next alert, which may come months later; and once."""
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    monkeypatch.setattr(alerts, "get_run_logger", lambda: logging.getLogger("night"))
    with serve_webhook(503) as (url, refused), monkeypatch.context() as away:
        away.setenv("DEADHEAT_WEBHOOK_URL", url)
        alert.fn("release-jax-1.2-0", "JAX 1.2 is slower", {}, str(state.root))
    assert len(refused) == 1 and has_waiting(state)
    for night in ("nightly-laptop-2026-11-26", "nightly-laptop-2026-11-27"):
        end_night(night, str(state.root), None, None)
    assert posted == [{"text": "JAX 1.2 is slower"}] and not has_waiting(state)


def test_the_end_of_a_night_sends_and_emits_what_failed_in_two_nights_once(
    state: State, posted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    emitted = list[str]()
    monkeypatch.setattr(pipeline, "emit_event", lambda name, **_: emitted.append(name))
    monkeypatch.setattr(pipeline, "send_alert", alert.fn)
    nights = [f"nightly-laptop-2026-01-{day:02}" for day in (1, 2, 3)]
    racers = [JAX, *[replace(JAX, status="crash")] * 2]
    for number, (night, racer) in enumerate(zip(nights, racers, strict=True), start=1):
        document = make_history([0.1] * number, (racer, TORCH))[-1]
        open_history(state, [{**document, "campaign": night}]).dispose()
        save_plan(make_plan(night), campaign_folder(state, night) / "plan.json")
    outcome = {"campaign": nights[-1], "void": None}
    for _ in range(2):  # a night that is run again
        end_night(nights[-1], str(state.root), None, outcome)
    assert [each["text"].partition(": ")[0] for each in posted] == ["Failed in two nights"]
    assert posted[0]["again"].endswith(f"--campaign {nights[-1]}")
    assert "deadheat.night.broken" in emitted
    end_night(nights[1], str(state.root), None, {**outcome, "campaign": nights[1]})
    assert len(posted) == 1


def _close_event(state: State) -> None:
    """A release of one night, which the next one replaced; a person was alerted."""
    logs = np.random.default_rng(4).normal(0.2, 0.005, 20)
    logs[10] += 0.06
    released = [replace(JAX, name="jax-1.2", version="1.2"), TORCH]
    documents = make_history(logs.tolist(), later=released, since=10)
    engine = open_history(state, documents[:11])
    refresh_suspicions(engine)
    details = {"suspicion": 1, "cause": "JAX 1.2 against 1.1", "size": 0.1}
    alert = {"text": "JAX 1.2 is slower.", "details": details}
    store_finding(engine, 1, FOUND, names={"a": "jax", "b": "torch"}, alert=alert)
    record_sent(engine, 1)
    store_history(engine, state, [*documents[:11], *make_history(logs.tolist())[11:]])
    refresh_suspicions(engine)
    engine.dispose()


def test_the_end_of_a_night_sends_and_emits_what_became_fixed_once(
    state: State, posted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shift that is gone, whose event the night closed; the webhook was away at first."""
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    monkeypatch.setattr(alerts, "get_run_logger", lambda: logging.getLogger("night"))
    emitted = list[tuple[str, dict[str, Any]]]()
    monkeypatch.setattr(alerts, "emit_event", lambda name, **named: emitted.append((name, named)))
    _close_event(state)
    with serve_webhook(503) as (url, refused), monkeypatch.context() as away:
        away.setenv("DEADHEAT_WEBHOOK_URL", url)
        end_night("nightly-laptop-2026-11-26", str(state.root), None, None)
    assert len(refused) == 1 and has_waiting(state)
    for night in ("nightly-laptop-2026-11-27", "nightly-laptop-2026-11-28"):
        end_night(night, str(state.root), None, None)
    [sent] = posted
    assert sent["text"] == (
        "Event 1 is over: the nights since 2026-01-12 are back at the old level. It was: JAX 1.2 "
        "is slower."
    )
    [(name, event)] = emitted
    assert name == "deadheat.shift.fixed"
    assert event["resource"] == {"prefect.resource.id": "deadheat.fixed-1"}
    assert event["payload"]["cause"] == sent["cause"] == "JAX 1.2 against 1.1"
    (path,) = (state.root / "history").glob("*.json")
    assert json.loads(path.read_text())["event"]["unsent_alert"] is None


def test_confirm_on_the_command_line_sends_to_the_addresses_of_the_server(
    state: State, posted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were counted as sent without."""
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    queue_alert(state, "event-7", "JAX 1.2 is slower", {"events": [7]})
    done = CliRunner().invoke(app, ["confirm", "--state", str(state.root)])
    assert done.exit_code == 0, done.output
    assert posted == [{"text": "JAX 1.2 is slower", "events": [7]}]


def test_a_picture_that_cannot_be_drawn_keeps_back_no_alert(
    state: State, posted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(alerts, "draw_forest_png", fail)
    with pytest.raises(OSError, match="no space left"):
        alert.fn("release-jax-1.2-0", "JAX 1.2 is slower", {}, str(state.root), campaign="release")
    assert posted == [{"text": "JAX 1.2 is slower"}]


def test_without_a_webhook_the_server_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEADHEAT_WEBHOOK_URL", raising=False)
    assert load_webhook() is None

    async def load_where_a_loop_runs() -> Webhook | None:
        return load_webhook()

    run = copy_context().run  # with this test's server
    with ThreadPoolExecutor(1) as pool:  # tests before this one may have left a loop
        assert pool.submit(run, asyncio.run, load_where_a_loop_runs()).result() is None

"""`deadheat events`: what people do to a confirmed shift, and what they can't."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from result_documents import make_history, make_plan
from stored_histories import open_history
from typer.testing import CliRunner
from webhooks import serve_webhook

from benchcore.errors import UserError
from benchcore.experiments.rounds import check_looks
from benchcore.planning.matrix import save_plan
from benchcore.running.plans import campaign_folder
from benchcore.state import State, open_state
from benchcore.store.history.events import store_finding
from benchcore.store.history.suspicions import refresh_suspicions
from benchcore.verdict.confirmation.decide import Finding
from benchcore.verdict.samples import Judgement
from dashboards.publish import publish_campaign
from dashboards.website.files import WebsiteFiles
from flows.cli.confirm import print_confirmation
from flows.cli.main import app, main
from tasks import alerts

CANDIDATE = {"side": "b", "kind": "package", "name": "triton", "old": "3.6", "new": "3.7"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A state folder with one event: torch became slower by a twentieth."""
    state = open_state(tmp_path)
    logs = np.random.default_rng(4).normal(0.2, 0.005, 16) + 0.05 * (np.arange(16) >= 10)
    documents = make_history(logs.tolist())
    for document in documents[10:]:
        document["allocation"]["node"] = "node-2"
    engine = open_history(state, documents)
    refresh_suspicions(engine)
    moved = Judgement(verdict="different", log_ratio=0.05, low=0.04, high=0.06, reason="")
    finding = Finding(
        num_starts=5,
        change=moved,
        a=None,
        b=moved,
        control=Judgement(verdict="same", reason=""),
        level=0.25,
        verdict="confirmed",
        culprit="b",
        reason="the step time changed in PyTorch by +5.1 % (+4.1 to +6.2 %)",
    )
    names = {"a": "jax", "b": "torch"}
    alert = {"text": "caused by torch: <b>", "details": {"culprit": "torch"}}
    store_finding(engine, 1, finding, names=names, candidates=[CANDIDATE], alert=alert)
    engine.dispose()
    return tmp_path


def _run_events(root: Path, *command: str) -> str:
    given = ["events", *command, "--state", str(root)]
    done = CliRunner().invoke(app, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("served", [True, False])
def test_a_confirmation_emits_its_events_where_a_prefect_server_is(
    root: Path, monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    emitted = list[tuple[str, dict[str, Any]]]()
    monkeypatch.setattr(alerts, "emit_event", lambda name, **named: emitted.append((name, named)))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api" if served else "")
    done = CliRunner().invoke(app, ["confirm", "--state", str(root)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    if not served:
        assert emitted == []
        return
    ((name, named),) = emitted
    assert name == "deadheat.shift.confirmed"
    assert named["resource"] == {"prefect.resource.id": "deadheat.event-1"}
    payload = named["payload"]
    assert payload["text"] == "Event 1: caused by torch: <b>"
    assert (payload["events"], payload["culprit"]) == ([1], "torch")
    assert payload["dashboard"].endswith("/site/events.html#event-1")


def test_a_confirmation_adds_its_event_to_the_dashboard(root: Path) -> None:
    state = State(root)
    save_plan(make_plan("history"), campaign_folder(state, "history") / "plan.json")
    publish_campaign(state, "history")
    page = WebsiteFiles(state.website).path_of("pages/events")
    page.unlink()
    done = CliRunner().invoke(app, ["confirm", "--state", str(root)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "event-1" in page.read_text()


def test_an_alert_that_was_refused_is_sent_by_the_next_confirmation_and_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that found the shift died before it sent the alert; then the webhook was away."""
    command = ["confirm", "--state", str(root)]
    with serve_webhook(status=503) as (url, _):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
        refused = CliRunner().invoke(app, command, catch_exceptions=False)
    assert refused.exit_code == 1
    assert "the alert 'event-1' waits: the webhook answered 503" in refused.stderr
    with serve_webhook() as (url, posted):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
        for _ in range(2):
            assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    text = "Event 1: caused by torch: &lt;b&gt;"
    page = State(root).link("events.html#event-1")
    sent = {"event": 1, "events": [1], "culprit": "torch", "size": 0.0, "dashboard": page}
    sent |= {"suspicions": [None]}  # the stored alert names none
    assert posted == [{"text": text, "state": "confirmed", **sent}]
    assert _read_history(root)["event"]["unsent_alert"] is None  # a rebuild won't send it again


def _read_history(root: Path) -> dict[str, Any]:
    (path,) = (root / "history").glob("*.json")
    return json.loads(path.read_text())


def test_an_event_is_listed_shown_annotated_and_acknowledged(root: Path) -> None:
    printed = _run_events(root)
    assert "untriaged" in printed and "torch" in printed and "+5.1 % (+4.1 to +6.2 %)" in printed
    _run_events(root, "annotate", "1", "--by", "ann", "--note", "triton?", "--owner", "bob")
    assert "event 1 is accepted" in _run_events(
        root, "acknowledge", "1", "--as", "accepted", "--by", "bob", "--note", "by design"
    )
    shown = _run_events(root, "show", "1")
    document = _read_history(root)
    assert [each["who"] for each in document["changes"]] == ["deadheat", "ann", "bob"]
    assert document["event"]["state"] == "accepted"
    assert "Event 1, accepted: mlp tiny: jax-jit against torch-compile" in shown
    for text in (
        "Owner: bob. Device: Some CPU.",
        "triton?",
        "by design",
        "3.6",
        "3.7",
        "opened by a confirmation",
        "node-2",
    ):
        assert text in shown
    event = json.loads(_run_events(root, "show", "1", "--json"))
    assert [each["who"] for each in event["history"]] == ["deadheat", "ann", "bob"]


def test_bad_input_ends_with_2_and_one_paragraph(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, words in (
        ("acknowledge 1 --as fixed --by ann", "can go to, got 'fixed'"),
        ("acknowledge 1 --as gone --by ann", "no state 'gone'"),
        ("show 5", "no event 5; there are 1"),
        ("annotate 1 --by ann", "wanted a note or an owner"),
    ):
        argv = ["deadheat", "events", *command.split(), "--state", str(root)]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("starts", [[1], [5, 5], [8, 5], [5, 101]])
def test_looks_must_grow(starts: list[int]) -> None:
    with pytest.raises(UserError, match="wanted increasing numbers of starts from 2 to 100"):
        check_looks(starts)
    assert check_looks([5, 8]) == (5, 8)


def test_the_result_of_a_confirmation_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    confirmed = {"suspicion": 1, "series": "mlp tiny", "starts": 5, "culprit": "torch"}
    answered = {"verdict": "confirmed", "reason": "the step time changed in PyTorch by +5.1 %"}
    print_confirmation(
        [{**confirmed, **answered, "candidates": [CANDIDATE], "lost": ["[of] load"] * 2}]
    )
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("mlp tiny", "confirmed", "PyTorch by +5.1 %", "triton", "3.7"):
        assert words in printed
    assert printed.count("suspicion 1: a start does not count: [of] load") == 1
    print_confirmation([])
    assert "no suspicion is open" in capsys.readouterr().out

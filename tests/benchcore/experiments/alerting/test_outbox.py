"""Alerts: who gets them, what waits where an address is away, and what is one message."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from webhooks import serve_webhook

from benchcore.errors import UserError
from benchcore.experiments.alerting import outbox
from benchcore.experiments.alerting.alerts import PAYLOAD
from benchcore.experiments.alerting.outbox import (
    find_addresses,
    queue_alert,
    queue_events,
    send_waiting,
    set_picture,
    write_body,
)
from benchcore.state import State

DETAILS = {
    "moved": ["mlp infer_b128: jax-jit against torch-eager, cold_compile_s (open)"],
    "differences": [
        {"kind": "package", "name": "jaxlib", "old": "0.10.1", "new": "0.10.2"},
        {"kind": "program", "name": "dots", "a": 3, "b": None},
    ],
    "dashboard": "http://127.0.0.1:4201/night/index.html",
    "again": "deadheat compare mlp --case infer_b128 --a jax==0.10.1 --b jax==0.10.2",
}


def test_a_program_gets_json_and_people_get_text(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_webhook() as (hook, json_posted), serve_webhook() as (people, posted):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", hook)
        monkeypatch.setenv("DEADHEAT_NOTIFY", people.replace("http", "json"))
        queue_alert(state, "event-3", "<!channel> torch & jax", DETAILS)
        assert send_waiting(state) == []
    assert json_posted == [{"text": "&lt;!channel&gt; torch &amp; jax", **DETAILS}]
    [got] = posted
    assert got["title"] == "Dead Heat"
    assert got["message"].splitlines() == [
        "<!channel> torch & jax",
        "Also changed: mlp infer_b128: jax-jit against torch-eager, cold_compile_s (open).",
        "Packages: jaxlib 0.10.1 to 0.10.2.",
        "Program: dots 3 to none.",
        "Page: http://127.0.0.1:4201/night/index.html",
        "Measure again: deadheat compare mlp --case infer_b128 --a jax==0.10.1 --b jax==0.10.2",
    ]


def _certify(case: str, change: float, metric: str = "median_step_ns") -> dict[str, Any]:
    row = {"workload": "mlp", "case_name": case, "a_arm": "jax-jit", "metric": metric}
    ends = {"low": change - 0.01, "high": change + 0.01}
    return {**row, "certificate": "better" if change > 0 else "worse", "change": change, **ends}


def test_the_message_of_a_release_lists_what_moved_largest_first() -> None:
    rows = [_certify(f"case_{number}", -0.02 * number) for number in range(2, 12)]
    rows += [_certify("train_b128", 1.0), _certify("train_b128", -0.5, "cold_compile_s")]
    rows.append({**_certify("infer_b8", -0.9, "cold_compile_s"), "certificate": "not shown"})
    body = write_body("JAX 0.12.0 is slower.", {"moved": ["something"], "certificates": rows})
    first, title, *listed, last = body.splitlines()
    assert (first, title) == ("JAX 0.12.0 is slower.", "What changed, largest first:")
    assert listed[0] == "- MLP, training, batch 128, fp32 (JAX) is 2 times as fast (1.99 to 2.01)"
    assert listed[1].startswith("- the compile time of MLP, training, batch 128, fp32 (JAX) is 2 ")
    assert listed[2].startswith("- mlp case_11 (JAX) is 28 % slower (2")
    assert (len(listed), last) == (10, "- and 2 more")
    assert "infer_b8" not in body


def test_the_message_of_a_release_lists_the_step_times_that_did_not_change() -> None:
    """With their intervals: what is not shown is not the same as unchanged."""
    rows = [
        _certify("infer_b1", -0.1),
        {**_certify("train_b128", 0.002), "certificate": "unchanged"},
        {**_certify("infer_b8", -0.02), "certificate": "not shown"},
        {**_certify("infer_b32", 0.0), "certificate": "not shown", "low": None, "high": None},
        {**_certify("infer_b32", 0.0, "cold_compile_s"), "certificate": "unchanged"},
    ]
    body = write_body("JAX 0.12.0 is slower.", {"moved": [], "certificates": rows})
    assert body.splitlines()[3:] == [
        "Step times that did not, or are not shown to:",
        "- MLP, training, batch 128, fp32 (JAX) takes 0.988 to 1.01 times as long: unchanged",
        "- MLP, inference, batch 8, fp32 (JAX) takes 1.01 to 1.03 times as long: not shown",
        "- MLP, inference, batch 32, fp32 (JAX): not shown",
    ]


def test_marks_in_a_framework_s_message_are_no_html_in_a_mail(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_webhook() as (people, posted):
        mail = f"{people.replace('http', 'json')}?format=html"
        monkeypatch.setenv("DEADHEAT_NOTIFY", mail)
        queue_alert(state, "event-3", "failed: <img src=x> & co", {"dashboard": "http://x/"})
        assert send_waiting(state) == []
    [got] = posted
    assert got["message"].startswith("failed:&nbsp;&lt;img&nbsp;src=x&gt;&nbsp;&amp;&nbsp;co<br/>")


def test_the_picture_is_attached(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "series.png"
    picture.write_bytes(b"png")
    with serve_webhook() as (people, posted):
        monkeypatch.setenv("DEADHEAT_NOTIFY", people.replace("http", "json"))
        queue_alert(state, "Event 3", "slower", {})
        set_picture(state, "Event 3", picture)
        assert send_waiting(state) == []
    assert [each["filename"] for each in posted[0]["attachments"]] == ["series.png"]


def test_an_address_that_was_away_gets_it_later_and_the_other_not_twice(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_webhook() as (people, posted):
        with serve_webhook(503) as (hook, _):
            monkeypatch.setenv("DEADHEAT_NOTIFY", people.replace("http", "json"))
            monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", f"{hook}secret")
            queue_alert(state, "release jax 1.2", "slower", {})
            [reason] = send_waiting(state)
        assert reason == "the alert 'release-jax-1.2' waits: the webhook answered 503"
        with serve_webhook() as (hook, late):
            monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", hook)
            assert send_waiting(state) == send_waiting(state) == []
            queue_alert(state, "release jax 1.2", "measured again", {})
            assert send_waiting(state) == []
    assert (len(posted), late) == (1, [{"text": "slower"}])


def test_without_an_address_nothing_waits(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    queue_alert(state, "event-1", "nobody hears it", {})
    assert send_waiting(state) == []
    with serve_webhook() as (hook, posted):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", hook)
        assert send_waiting(state) == []
    assert posted == []


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"text": "torch'])
def test_a_damaged_alert_is_named_once_and_stops_no_other(
    content: str, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("event-1", "event-2"):
        queue_alert(state, key, key, DETAILS)
    waiting = state.root / "alerts" / "waiting"
    (waiting / "event-1.json").write_text(content)
    set_picture(state, "event-1", Path("picture.png"))
    with serve_webhook() as (hook, posted):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", hook)
        [reason] = send_waiting(state)
        assert "'event-1' is damaged" in reason and "event-1.damaged" in reason
        assert send_waiting(state) == []
    assert [each["text"] for each in posted] == ["event-2"]
    assert (waiting / "event-1.damaged").read_text() == content


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("DEADHEAT_WEBHOOK_URL", "file:///etc/passwd"),
        ("DEADHEAT_WEBHOOK_URL", "example.com"),
        ("DEADHEAT_NOTIFY", "nonsense"),
        ("DEADHEAT_NOTIFY", "json://localhost unknown://secret"),
    ],
)
def test_a_malformed_address_is_refused_without_its_secret(
    name: str, address: str, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, address)
    with pytest.raises(UserError, match=name) as refused:
        find_addresses()
    assert "secret" not in str(refused.value)


def test_a_failing_address_is_reported_without_its_secret(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}/secret"
    queue_alert(state, "event-1", "", {})
    for name, address, words in (
        ("DEADHEAT_WEBHOOK_URL", f"http://{nobody}", "not reached: ConnectError"),
        ("DEADHEAT_WEBHOOK_URL", "http://secret:nope/", "not reached: InvalidURL"),
        ("DEADHEAT_NOTIFY", f"json://{nobody}", "the json address "),
    ):
        with monkeypatch.context() as only:
            only.setenv(name, address)
            [reason] = send_waiting(state)
        assert words in reason and "secret" not in reason


def _event(case: str, ratio: float, cause: str | None = "JAX 0.12.0 against 0.11.0") -> Any:
    details = {"cause": cause, "size": math.log(ratio), "suspicion": 1}
    return {"text": f"{case} is {ratio:g} times as slow.", "details": details}


@pytest.fixture
def queue(state: State, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Queues these alerts of events 1, 2, ..."""

    def run(alerts: Sequence[Any], recorded: list[int]) -> list[dict[str, Any]]:
        unsent = dict(enumerate(alerts, start=1))
        monkeypatch.setattr(outbox, "list_unsent", lambda _: unsent)
        monkeypatch.setattr(outbox, "record_sent", lambda _, event: recorded.append(event))
        return queue_events(None, state)  # type: ignore[arg-type]

    return run


def test_a_release_is_one_message_with_its_largest_shift_first(
    state: State, queue: Callable[..., list[dict[str, Any]]]
) -> None:
    alerts = [_event("a", 1.1), _event("b", 1.5), _event("c", 1.2, None), _event("d", 1.3)]
    recorded = list[int]()
    release, other = queue(alerts, recorded)
    assert release["events"] == [2, 4, 1] and other["events"] == [3]
    assert release["text"] == (
        "JAX 0.12.0 against 0.11.0 changed 3 series. Event 2: b is 1.5 times as slow. "
        "Event 4: d is 1.3 times as slow. Event 1: a is 1.1 times as slow."
    )
    assert other["text"] == "Event 3: c is 1.2 times as slow."
    pages = [each["dashboard"].partition("/site/")[2] for each in (release, other)]
    assert pages == ["events.html#event-2", "events.html#event-3"]
    assert recorded == [1, 2, 3, 4]
    waiting = [path.name for path in (state.root / "alerts" / "waiting").glob("*.json")]
    assert sorted(waiting) == ["event-1-2-4.json", "event-3.json"]


def test_a_release_that_changed_hundreds_of_series_is_one_message_too(
    state: State, queue: Callable[..., list[dict[str, Any]]]
) -> None:
    """Its file has a name that a file system accepts."""
    recorded = list[int]()
    alerts = [_event("a", 1.1) for _ in range(300)]
    [release] = queue(alerts, recorded)
    assert (len(release["events"]), len(recorded)) == (300, 300)
    assert release["key"].endswith("-19-20-and-more")
    assert "And 295 more." in release["text"]
    assert queue(alerts, []) == []


def test_a_change_that_several_series_show_is_one_sentence(
    queue: Callable[..., list[dict[str, Any]]],
) -> None:
    """A framework's, against the other one and against its older version."""
    alerts = [_event(case, ratio) for case, ratio in (("a", 1.1), ("a", 1.2), ("b", 1.15))]
    for alert in alerts[:2]:
        alert["details"]["subject"] = "step time of jax-jit-0.12.0 in a on a CPU"
    [release] = queue(alerts, [])
    assert release["text"] == (
        "JAX 0.12.0 against 0.11.0 changed 3 series. Events 2 and 1: a is 1.2 times as slow. "
        "Event 3: b is 1.15 times as slow."
    )
    [over] = queue([_fixed(alert) for alert in alerts], [])
    assert " Events 2 and 1 are over: the nights since 2026-05-03 are back" in over["text"]


def test_five_changes_are_named_however_many_series_show_them(
    queue: Callable[..., list[dict[str, Any]]],
) -> None:
    alerts = [_event("a", 1.1) for _ in range(12)]
    for number, alert in enumerate(alerts):
        alert["details"]["subject"] = str(number // 2)
    [release] = queue(alerts, [])
    assert release["text"].count("Events ") == 5
    assert release["text"].endswith(" And 2 more.")


def test_all_that_a_machine_changed_in_one_confirmation_is_one_message(
    queue: Callable[..., list[dict[str, Any]]],
) -> None:
    here, there = ({"group": f"The infrastructure of {name}"} for name in ("A", "B"))
    alerts = [_event(case, ratio, None) for case, ratio in (("a", 1.1), ("b", 1.5), ("c", 1.2))]
    first, second = queue([alerts[0] | here, alerts[1] | here, alerts[2] | there], [])
    assert (first["events"], second["events"]) == ([2, 1], [3])
    assert first["text"].startswith("The infrastructure of A changed 2 series. Event 2: b is 1.5 ")
    assert second["text"] == "Event 3: c is 1.2 times as slow."


def test_what_a_killed_process_queued_is_not_queued_again(
    state: State, queue: Callable[..., list[dict[str, Any]]]
) -> None:
    queue([_event("a", 1.1)], [])
    recorded = list[int]()
    [fresh] = queue([_event("a", 1.1), _event("b", 1.5)], recorded)
    assert fresh["events"] == [2] and recorded == [1, 2]
    path = state.root / "alerts" / "waiting" / "event-1.json"
    assert json.loads(path.read_text())["taken"] == []


def _fixed(event: dict[str, Any]) -> dict[str, Any]:
    note = "the nights since 2026-05-03 are back at the old level"
    return {**event, "details": {**event["details"], "state": "fixed"}, "note": note}


def test_what_is_fixed_is_one_message_per_cause_and_not_joined_with_what_changed(
    state: State, queue: Callable[..., list[dict[str, Any]]]
) -> None:
    alerts = [_fixed(_event("a", 1.1)), _event("b", 1.5), _fixed(_event("c", 1.2))]
    changed, fixed = queue(alerts, [])
    assert (changed["state"], changed["events"]) == ("confirmed", [2])
    assert (fixed["state"], fixed["events"], fixed["key"]) == ("fixed", [3, 1], "fixed-1-3")
    since = "is over: the nights since 2026-05-03 are back at the old level. It was: "
    assert fixed["text"] == (
        "What JAX 0.12.0 against 0.11.0 changed in 2 series is gone. "
        f"Event 3 {since}c is 1.2 times as slow. Event 1 {since}a is 1.1 times as slow."
    )
    assert set(PAYLOAD) < fixed.keys() and fixed["again"] is None
    assert queue(alerts, []) == []
    assert [each["events"] for each in queue([_fixed(each) for each in alerts], [])] == [[2]]


def test_an_event_that_grew_sends_each_growth_once(
    state: State, queue: Callable[..., list[dict[str, Any]]]
) -> None:
    """It is known by its suspicion: its event had an alert before, and may grow again."""
    queue([_event("a", 1.1, None)], [])
    sent = list[str]()
    for suspicion in (2, 2, 3):
        alert = _event("a", 1.2, None)
        alert["details"] |= {"suspicion": suspicion, "state": "grown"}
        sent += [f"{each['key']}: {each['text']}" for each in queue([alert], [])]
    text = "Event 1 grew: a is 1.2 times as slow."
    assert sent == [f"grown-2: {text}", f"grown-3: {text}"]


def test_growth_after_a_killed_process_queued_the_first_alert_is_sent(
    state: State, queue: Callable[..., list[dict[str, Any]]]
) -> None:
    """The event's alert was not recorded as queued, so that of its growth replaced it."""
    alerts = [_event("a", 1.1), _event("b", 1.2)]
    alerts[1]["details"]["suspicion"] = 2
    queue(alerts, [])
    alerts[0]["details"]["suspicion"] = 3
    [grown] = queue(alerts, [])
    assert (grown["key"], grown["state"], grown["events"]) == ("grown-3", "grown", [1])
    assert grown["text"] == "Event 1 grew: a is 1.1 times as slow."
    assert queue(alerts, []) == []


def test_an_alert_of_an_earlier_version_is_not_queued_again(
    state: State, queue: Callable[..., list[dict[str, Any]]]
) -> None:
    """It names the suspicion of its first event only."""
    alerts = [_event("a", 1.1), _event("b", 1.5)]
    alerts[1]["details"]["suspicion"] = 2
    queue(alerts, [])
    [path] = (state.root / "alerts" / "waiting").glob("*.json")
    content = json.loads(path.read_text())
    del content["details"]["suspicions"]
    path.write_text(json.dumps(content))
    assert queue(alerts, []) == []


def test_an_address_that_answers_byte_by_byte_delays_no_night(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other addresses get the alert."""
    monkeypatch.setattr(outbox, "_LIMIT_S", 0.5)
    ended = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not ended.wait(0.05):
                connection.sendall(b"x")

    with serve_webhook() as (people, posted), socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        port = listening.getsockname()[1]
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", f"http://127.0.0.1:{port}/secret")
        monkeypatch.setenv("DEADHEAT_NOTIFY", people.replace("http", "json"))
        queue_alert(state, "event-3", "torch is slower", {})
        (refused,) = send_waiting(state)
        ended.set()
        thread.join()
    assert "the webhook did not answer within 0.5 s" in refused and "secret" not in refused
    assert len(posted) == 1

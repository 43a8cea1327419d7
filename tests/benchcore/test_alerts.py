"""What is told to a webhook, and what happens where nobody listens."""

from __future__ import annotations

import socket

import pytest
from webhooks import serve_webhook

from benchcore.alerts import AlertFailedError, post_alert
from benchcore.errors import UserError


def test_an_alert_is_escaped_and_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_webhook() as (url, posted):
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
        post_alert("<!channel> torch & jax", {"event": 3})
    assert posted == [{"text": "&lt;!channel&gt; torch &amp; jax", "event": 3}]


@pytest.mark.parametrize("url", ["", None])
def test_without_a_webhook_nothing_is_sent(
    url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEADHEAT_WEBHOOK_URL", raising=False)
    if url is not None:
        monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
    post_alert("nobody hears it", {})


@pytest.mark.parametrize("url", ["file:///etc/passwd", "javascript:1", "example.com"])
def test_a_malformed_web_address_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", url)
    with pytest.raises(UserError, match="wanted an http address"):
        post_alert("", {})


def test_a_failing_webhook_is_reported_without_its_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/secret"
    with serve_webhook(500) as (url, _):
        for each, words in (
            (f"{url}secret", "answered 500"),
            (nobody, "not reached: ConnectError"),
            ("http://secret:nope/", "not reached: InvalidURL"),
        ):
            monkeypatch.setenv("DEADHEAT_WEBHOOK_URL", each)
            with pytest.raises(AlertFailedError, match=words) as failed:
                post_alert("", {})
            assert "secret" not in str(failed.value)

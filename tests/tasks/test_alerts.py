"""Alerts reach the addresses that only the server knows, and wait for no picture."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prefect.blocks.webhook import Webhook
from webhooks import serve_webhook

from benchcore.state import State
from tasks import alerts
from tasks.alerts import WAITED, WEBHOOK_BLOCK, alert, load_webhook

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

    with ThreadPoolExecutor(1) as pool:  # tests before this one may have left a loop
        assert pool.submit(asyncio.run, load_where_a_loop_runs()).result() is None

"""Alerts in Prefect: their addresses in a secret block, their events, and their pictures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from prefect import get_run_logger, task
from prefect.blocks.core import Block
from prefect.blocks.system import Secret
from prefect.blocks.webhook import Webhook
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event

from benchcore import variables
from benchcore.errors import UserError
from benchcore.experiments.alerting.outbox import (
    add_pictures,
    has_waiting,
    queue_alert,
    queue_events,
    send_waiting,
    set_picture,
)
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.history.history_documents import save_history
from dashboards.figures.pictures import draw_forest_png, draw_series_png
from tasks.artifacts import WAITED
from tasks.limits import LIMIT_S

_Block = TypeVar("_Block", bound=Block)
BLOCK = "deadheat-notify"
"""The secret block with the addresses, where DEADHEAT_NOTIFY is unset."""
WEBHOOK_BLOCK = "deadheat-alerts"
"""The block with the webhook that was set when `deadheat deploy` ran."""


def use_stored_addresses() -> None:
    """Take the addresses that the server stores for this process, unless its own variables name
    some: a worker may lack those that were set for `deadheat deploy`."""
    if not os.environ.get("PREFECT_API_URL"):
        return
    if not variables.NOTIFY.read() and (secret := _load(Secret, BLOCK)):
        os.environ[variables.NOTIFY.name] = str(secret.get())
    if not variables.WEBHOOK_URL.read() and (webhook := load_webhook()):
        os.environ[variables.WEBHOOK_URL.name] = webhook.url.get_secret_value()


def load_webhook() -> Webhook | None:
    """The webhook that the server stores, if there is one."""
    return _load(Webhook, WEBHOOK_BLOCK)


def _load(kind: type[_Block], name: str) -> _Block | None:
    try:
        found = kind.load(name, **WAITED)
    except ValueError:  # there is no such block
        return None
    assert isinstance(found, kind)
    return found


def draw_suspicion(state: State) -> Callable[[int], Path | None]:
    """Draws the series of a suspicion into the state folder."""

    def draw(suspicion: int) -> Path | None:
        picture = draw_series_png(state, suspicion)
        return _save(state, f"suspicion-{suspicion}", picture)

    return draw


def _save(state: State, name: str, picture: bytes | None) -> Path | None:
    if picture is None:
        return None
    path = state.root / "alerts" / f"{name}.png"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(picture)
    return path


def emit_shift(alert: Mapping[str, Any]) -> None:
    """Emit the alert of a confirmed shift, or of one that is over, for Prefect's automations."""
    emit_event(
        f"deadheat.shift.{alert['state']}",
        resource={"prefect.resource.id": f"deadheat.{alert['key']}"},
        payload=dict(alert),
    )


@task(task_run_name="alert-{key}", cache_policy=NO_CACHE, timeout_seconds=LIMIT_S)
def alert(
    key: str, text: str, details: Mapping[str, Any], root: str, *, campaign: str | None = None
) -> None:
    """Send an alert with a campaign's forest plot, and all that wait. One that is refused waits for
    the next alert; one whose picture can't be drawn is sent without."""
    state = State(Path(root))
    queue_alert(state, key, text, details)
    try:
        picture = None if campaign is None else _save(state, key, draw_forest_png(state, campaign))
        if picture is not None:
            set_picture(state, key, picture)
    finally:
        use_stored_addresses()
        _send(state)


def send_events(root: str) -> None:
    """Queue and emit the alerts of events that are not in the outbox yet, such as of those that
    became `fixed` tonight, and send all that wait. One whose picture can't be drawn is sent
    without."""
    state = open_state(Path(root))
    engine = open_database(state.database_url)
    found = queue_events(engine, state)
    save_history(engine, state)  # a rebuild won't send them again
    for each in found if os.environ.get("PREFECT_API_URL") else ():
        emit_shift(each)
    try:
        add_pictures(state, found, draw_suspicion(state))
    finally:
        send_unsent(root)


def send_unsent(root: str) -> None:
    """Send the alerts that wait, such as one whose address did not answer when it was written."""
    state = State(Path(root))
    if has_waiting(state):
        use_stored_addresses()
        _send(state)


def _send(state: State) -> None:
    try:
        refused = send_waiting(state)
    except UserError as error:
        refused = [str(error)]
    for each in refused:
        get_run_logger().warning(each)

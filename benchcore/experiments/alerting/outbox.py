"""Sends alerts: each waits in a file of the state folder until every address has accepted it.

DEADHEAT_NOTIFY holds addresses of people (apprise: Slack, mail, Teams and many more), which get the
text and the picture; DEADHEAT_WEBHOOK_URL a program's, which gets JSON.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import httpx

from benchcore import variables
from benchcore.errors import UserError
from benchcore.experiments.alerting.alerts import PAYLOAD, list_changed, list_others
from benchcore.experiments.alerting.sentences import KINDS, join_sentences
from benchcore.protocol import write_json
from benchcore.state import State, hold_lock
from benchcore.store.database import Engine
from benchcore.store.history.events import list_unsent, record_sent

_TIMEOUT_S = 20.0
"""For each read or write of a webhook."""
_LIMIT_S = 60.0
"""For an address to accept an alert."""
_TITLE = "Dead Heat"
_SECTIONS = {
    "package": "Packages",
    "setting": "Settings",
    "effective": "Settings in force",
    "program": "Program",
}
_MOST_LISTED = 6
_MOST_ROWS = 10
_MOST_NUMBERS = 20
"""Events in the name of an alert's file: names have 255 characters at most. An event is in one
alert only, so the first numbers identify it."""


class AlertFailedError(Exception):
    """An address did not accept an alert, which waits for the next attempt."""


@dataclass(frozen=True)
class Address:
    """Where alerts go; `is_program` = a webhook that gets JSON. Its URL may hold a secret."""

    url: str
    is_program: bool

    @property
    def digest(self) -> str:
        """Names the address in files and messages without its secret."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:12]


def find_webhook() -> str | None:
    """DEADHEAT_WEBHOOK_URL, if it is set. Raises UserError if it is not an http address."""
    url = variables.WEBHOOK_URL.read()
    if url and not url.startswith(("http://", "https://")):
        raise UserError("wanted an http address in DEADHEAT_WEBHOOK_URL; set one, or unset it")
    return url


def find_addresses() -> list[Address]:
    """All addresses of alerts. Raises UserError for one that apprise does not know."""
    people = (variables.NOTIFY.read() or "").split()
    for number, url in enumerate(people, start=1):
        if _open(url) is None:
            raise UserError(
                f"wanted addresses as apprise writes them in DEADHEAT_NOTIFY, but number {number} "
                "is not one; correct it as in https://github.com/caronc/apprise/wiki, or remove it"
            )
    webhook = find_webhook()
    found = [Address(url, is_program=False) for url in dict.fromkeys(people)]
    return [*found, Address(webhook, is_program=True)] if webhook else found


def _open(url: str) -> Any:
    """The service behind an address of apprise; None if there is none."""
    import apprise  # takes a second

    return apprise.Apprise.instantiate(url, suppress_exceptions=True)


def _notify(url: str, body: str, attached: str | None) -> bool:
    """Whether the service took it. A mail is HTML, in which the text's own marks mean nothing."""
    import apprise

    service = apprise.Apprise()
    service.add(_open(url))
    text = apprise.NotifyFormat.TEXT
    return bool(service.notify(body=body, title=_TITLE, body_format=text, attach=attached))


def queue_alert(state: State, key: str, text: str, details: Mapping[str, Any]) -> None:
    """Queue an alert for all addresses. A key that was used before is not queued again."""
    name = _name_file(key)
    if any((folder / name).exists() for folder in _folders(state)):
        return
    alert = {"text": text, "details": dict(details), "picture": None, "taken": []}
    write_json(_folders(state)[0] / name, alert)


def _name_file(key: str) -> str:
    return f"{re.sub(r'[^a-z0-9.-]+', '-', key.lower())}.json"


def has_waiting(state: State) -> bool:
    """Whether some alert waits for an address."""
    return any(_folders(state)[0].glob("*.json"))


def send_waiting(state: State) -> list[str]:
    """Send every alert that waits to the addresses that have not accepted it; why some still wait.
    One whose file is damaged is set aside, and named once.

    If the process dies right after an address accepted one, that address gets it again. Raises
    UserError as `find_addresses` does.
    """
    addresses = find_addresses()
    waiting, sent = _folders(state)
    refused = list[str]()
    with hold_lock(waiting.parent / ".lock"):
        for path in sorted(waiting.glob("*.json"), key=lambda each: each.stat().st_mtime_ns):
            if (alert := _read_alert(path)) is None:
                refused.append(_set_aside(path))
                continue
            reasons = _send_file(path, alert, addresses)
            if not reasons:
                path.rename(sent / path.name)
            refused += [f"the alert {path.stem!r} waits: {each}" for each in reasons]
    return refused


def _read_alert(path: Path) -> dict[str, Any] | None:
    """Read an alert that waits; None if a crash damaged its file."""
    try:
        alert = json.loads(path.read_text(encoding="utf-8"))
        whole = isinstance(alert["text"], str) and isinstance(alert["taken"], list)
        return (
            alert if whole and isinstance(alert["details"], dict) and "picture" in alert else None
        )
    except (ValueError, KeyError, TypeError):
        return None


def _set_aside(path: Path) -> str:
    damaged = path.rename(path.with_suffix(".damaged"))
    return (
        f"the alert {path.stem!r} is damaged and can't be sent; it is now {str(damaged)!r}; run "
        "`deadheat events`, which lists what changed"
    )


def _send_file(path: Path, alert: dict[str, Any], addresses: Iterable[Address]) -> list[str]:
    reasons = list[str]()
    for each in addresses:
        if each.digest in alert["taken"]:
            continue
        try:
            _send_in_time(each, alert)
        except AlertFailedError as error:
            reasons.append(str(error))
        else:
            alert["taken"].append(each.digest)
            write_json(path, alert)
    return reasons


def _send_in_time(address: Address, alert: Mapping[str, Any]) -> None:
    """Send an alert within `_LIMIT_S`. A time-out of the client limits a single read, so an address
    that answers byte by byte would delay the night for hours; its thread is left behind. Raises
    AlertFailedError."""
    sent = Future[None]()

    def send() -> None:
        try:
            sent.set_result(_send(address, alert))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            sent.set_exception(error)

    threading.Thread(target=send, name="alert", daemon=True).start()
    try:
        sent.result(_LIMIT_S)
    except TimeoutError:
        raise AlertFailedError(
            f"{_describe(address)} did not answer within {_LIMIT_S:g} s"
        ) from None


def _describe(address: Address) -> str:
    if address.is_program:
        return "the webhook"
    return f"the {address.url.partition(':')[0]} address {address.digest}"


def _send(address: Address, alert: Mapping[str, Any]) -> None:
    if address.is_program:
        post_json(address.url, alert["text"], alert["details"])
        return
    picture = alert["picture"]
    attached = picture if picture and Path(picture).exists() else None
    body = write_body(alert["text"], alert["details"])
    if not _notify(address.url, body, attached):
        raise AlertFailedError(f"{_describe(address)} did not accept it")


def post_json(url: str, text: str, details: Mapping[str, Any]) -> None:
    """Post an alert as JSON with a `text`, as Slack expects it, and its details. The address may
    hold a token, so no error shows it. Raises AlertFailedError if it was not delivered."""
    # Slack reads <!channel> and similar as commands; it requires only &, < and > to be escaped.
    body = {"text": html.escape(text, quote=False), **details}
    try:
        httpx.post(url, json=body, timeout=_TIMEOUT_S).raise_for_status()
    except httpx.HTTPStatusError as error:
        raise AlertFailedError(f"the webhook answered {error.response.status_code}") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise AlertFailedError(f"the webhook was not reached: {type(error).__name__}") from None


def write_body(text: str, details: Mapping[str, Any]) -> str:
    """What people read: the sentence, what changed, what differs, the link and the command."""
    lines = [text]
    changed = list_changed(details.get("certificates") or ())
    others = list_others(details.get("certificates") or ())
    lines += _write_rows("What changed, largest first", changed)
    lines += _write_rows("Step times that did not, or are not shown to", others)
    moved = [each for each in details.get("moved") or [] if each not in text]
    if moved and not changed:
        lines.append(f"Also changed: {'; '.join(moved[:_MOST_LISTED])}.")
    for kind, title in _SECTIONS.items():
        rows = [each for each in details.get("differences") or [] if each["kind"] == kind]
        if rows:
            listed = "; ".join(_describe_difference(each) for each in rows[:_MOST_LISTED])
            more = f"; and {len(rows) - _MOST_LISTED} more" if len(rows) > _MOST_LISTED else ""
            lines.append(f"{title}: {listed}{more}.")
    links = (("Page", "dashboard"), ("Measure again", "again"), ("Find the package", "search"))
    lines += [f"{title}: {details[key]}" for title, key in links if details.get(key)]
    return "\n".join(lines)


def _write_rows(title: str, rows: Sequence[str]) -> list[str]:
    lines = [f"{title}:"] if rows else []
    lines += [f"- {each}" for each in rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        lines.append(f"- and {len(rows) - _MOST_ROWS} more")
    return lines


def _describe_difference(row: Mapping[str, Any]) -> str:
    old, new = (row.get(name, row.get(other)) for name, other in (("old", "a"), ("new", "b")))
    return f"{row['name']} {_show(old)} to {_show(new)}"


def _show(value: object) -> str:
    return "none" if value is None else f"{value!s:.60}"


def queue_events(engine: Engine, state: State) -> list[dict[str, Any]]:
    """Queue the alerts of events, one per cause, the largest shift first: a release or a machine
    that changed ten cases is one message. Events that grew, and those that became `fixed` by
    themselves, have messages of their own. Returns the new ones: `key`, `text` and details."""
    unsent, queued = list_unsent(engine), _list_queued(state)
    groups: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for event, unread in unsent.items():
        alert = _note_growth(unread, queued["event"].get(event))
        kind = _find_kind(alert)
        if _number(kind, event, alert) not in queued[kind]:  # else a process died before it did
            cause = alert.get("group") or alert["details"].get("cause") or f"event {event}"
            groups.setdefault((kind, cause), {})[event] = alert
    found = [_join(kind, cause, of_one, state) for (kind, cause), of_one in groups.items()]
    found.sort(key=lambda each: -each["size"])
    for each in found:
        details = {name: value for name, value in each.items() if name not in ("key", "text")}
        queue_alert(state, each["key"], each["text"], details)
    for event in unsent:
        record_sent(engine, event)
    return found


def _note_growth(alert: Mapping[str, Any], first: int | None) -> Mapping[str, Any]:
    """The unsent alert, marked as growth if the event's `first` alert was queued for another
    suspicion: a process died before it recorded that, and the event has grown since."""
    details = alert["details"]
    if _find_kind(alert) != "event" or first in (None, details.get("suspicion")):
        return alert
    return {**alert, "details": {**details, "state": "grown"}}


def _find_kind(alert: Mapping[str, Any]) -> str:
    """`event`, `grown` or `fixed`: what an alert reports of its event."""
    return {"grown": "grown", "fixed": "fixed"}.get(str(alert["details"].get("state")), "event")


def _number(kind: str, event: int, alert: Mapping[str, Any]) -> int:
    """The number that identifies an alert: its event's, or its suspicion's if the event grew."""
    return alert["details"]["suspicion"] if kind == "grown" else event


def _join(
    kind: str, cause: str, alerts: Mapping[int, Mapping[str, Any]], state: State
) -> dict[str, Any]:
    """One alert of the events of a cause, which links to the first of them."""
    events = sorted(alerts, key=lambda each: -_size(alerts[each]))
    first = alerts[events[0]]
    known_by = sorted(_number(kind, each, alerts[each]) for each in events)
    numbers = "-".join(map(str, known_by[:_MOST_NUMBERS]))
    return {
        "key": f"{kind}-{numbers}" + ("-and-more" if len(events) > _MOST_NUMBERS else ""),
        "text": join_sentences(kind, cause, {each: alerts[each] for each in events}),
        **(dict.fromkeys(PAYLOAD) if kind == "fixed" else {"state": "confirmed"}),
        **first["details"],
        "dashboard": state.link(f"events.html#event-{events[0]}"),
        "event": events[0],
        "events": events,
        "size": _size(first),
        "suspicions": [alerts[each]["details"].get("suspicion") for each in events],
    }


def _size(alert: Mapping[str, Any]) -> float:
    return float(alert["details"].get("size") or 0.0)


def _list_queued(state: State) -> dict[str, dict[int, int | None]]:
    """The numbers (`_number`) in all alerts, sent or not, by kind, each with its suspicion; None =
    unknown."""
    found = dict[str, dict[int, int | None]]()
    for kind in KINDS:
        paths = [path for folder in _folders(state) for path in folder.glob(f"{kind}-*.json")]
        read = [alert["details"] for path in paths if (alert := _read_alert(path)) is not None]
        found[kind] = {
            number: suspicion
            for details in read
            for number, suspicion in zip(
                details.get("suspicions" if kind == "grown" else "events", ()),
                chain(details.get("suspicions") or [details.get("suspicion")], repeat(None)),
                strict=False,
            )
        }
    return found


Draw = Callable[[int], Path | None]
"""Draws the series of a suspicion as a picture file; None = there is nothing to draw."""


def add_pictures(state: State, alerts: Iterable[Mapping[str, Any]], draw: Draw) -> None:
    """Add the chart of its largest shift to each of these alerts of `queue_events`."""
    for each in alerts:
        picture = draw(each["suspicion"]) if each.get("suspicion") is not None else None
        if picture is not None:
            set_picture(state, each["key"], picture)


def set_picture(state: State, key: str, picture: Path) -> None:
    """Add a picture to an alert that waits."""
    waiting = _folders(state)[0]
    path = waiting / _name_file(key)
    with hold_lock(waiting.parent / ".lock"):  # who has accepted it is in the same file
        if path.exists() and (alert := _read_alert(path)) is not None:
            write_json(path, {**alert, "picture": str(picture)})


def _folders(state: State) -> Sequence[Path]:
    """The folders of waiting and of sent alerts."""
    folders = [state.root / "alerts" / name for name in ("waiting", "sent")]
    for each in folders:
        each.mkdir(parents=True, exist_ok=True)
    return folders

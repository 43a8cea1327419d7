"""What other programs read from the dashboard: an Atom feed of events, badges, the last night."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from benchcore.names import name_case_in_words
from benchcore.variables import DASHBOARD_URL
from dashboards.formatting import format_count
from dashboards.website.campaign.news import describe_change
from dashboards.website.events import is_open
from dashboards.website.files import replace_text

_ATOM = "http://www.w3.org/2005/Atom"
_MOST_ENTRIES = 50
_TEXT_LIMIT = 120

Change = Mapping[str, Any]


def write_machine_files(
    website: Path,
    catalog: Mapping[str, Any],
    changes: Sequence[Change],
    night: Mapping[str, Any] | None,
) -> None:
    """Write `feed.xml`, `badges/*.json` and `latest.json` into the dashboard. `night` is the page
    of the newest night, None = there is none yet."""
    replace_text(website / "feed.xml", write_feed(changes))
    for name, badge in list_badges(catalog, changes, night).items():
        replace_text(website / "badges" / f"{name}.json", _as_json(badge))
    replace_text(website / "latest.json", _as_json(describe_latest(catalog, changes, night)))


def write_feed(changes: Sequence[Change]) -> str:
    """Confirmed changes, the last changed first, as Atom (RFC 4287). Its links are absolute where
    DEADHEAT_DASHBOARD_URL is set."""
    events = sorted((each for each in changes if each["event"]), key=_updated, reverse=True)
    feed = ET.Element("feed", xmlns=_ATOM)
    updated = _updated(events[0]) if events else None
    _add(feed, "title", "Dead Heat: confirmed changes")
    _add(feed, "id", "urn:deadheat:events")
    _add(feed, "updated", _format_time(updated))
    ET.SubElement(feed, "link", rel="alternate", href=_locate("events.html"))
    _add(ET.SubElement(feed, "author"), "name", "Dead Heat")
    for each in events[:_MOST_ENTRIES]:
        _add_entry(feed, each)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(feed, encoding="unicode") + "\n"


def _add_entry(feed: ET.Element, change: Change) -> None:
    event = change["event"]
    entry = ET.SubElement(feed, "entry")
    _add(entry, "title", describe_change(change))
    _add(entry, "id", f"urn:deadheat:event:{event['id']}")
    _add(entry, "updated", _format_time(_updated(change)))
    _add(entry, "published", _format_time(event["opened_at"]))
    ET.SubElement(entry, "category", term=event["state"])
    ET.SubElement(entry, "link", rel="alternate", href=_locate(f"events.html#event-{event['id']}"))
    reason = (change["finding"] or {}).get("reason") or change["reason"]
    where = f"{name_case_in_words(change['case'])}, {change['case']['device_model']}"
    _add(entry, "summary", f"{where}. State: {event['state'].replace('_', ' ')}. {reason}")


def _add(parent: ET.Element, tag: str, text: str) -> None:
    """A child with text that XML allows: control characters are replaced."""
    ET.SubElement(parent, tag).text = "".join(
        each if each in "\t\n" or (each >= " " and not "\ud800" <= each <= "\udfff") else "?"
        for each in text
    )


def _updated(change: Change) -> datetime:
    return change["event"]["updated_at"]


def _format_time(at: datetime | None) -> str:
    return "1970-01-01T00:00:00+00:00" if at is None else at.isoformat(timespec="seconds")


def _locate(address: str) -> str:
    served = DASHBOARD_URL.read()
    return f"{served.rstrip('/')}/{address}" if served else address


def list_badges(
    catalog: Mapping[str, Any], changes: Sequence[Change], night: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """The badges by file name, in the format of shields.io's endpoints."""
    entry = _find_entry(catalog, night)
    still_open = sum(is_open(each) for each in changes if each["event"])
    tonight = ("no night yet", "lightgrey")
    if entry is not None:
        counts = entry["counts"]
        fine = counts["counting"] > 0
        tonight = (str(entry["verdict"]) if fine else "nothing counts", "blue" if fine else "red")
    events = (format_count(still_open, "open event"), "orange" if still_open else "brightgreen")
    return {
        name: {
            "schemaVersion": 1,
            "label": label,
            "message": message[:_TEXT_LIMIT],
            "color": color,
        }
        for name, label, (message, color) in (
            ("tonight", "JAX against PyTorch", tonight),
            ("events", "Dead Heat", events),
        )
    }


def _find_entry(
    catalog: Mapping[str, Any], night: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    if night is None:
        return None
    return next(each for each in catalog["campaigns"] if each["name"] == night["name"])


def describe_latest(
    catalog: Mapping[str, Any], changes: Sequence[Change], night: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The newest night for programs: its verdict, versions, pairs that count, and open events."""
    entry = _find_entry(catalog, night)
    events = [each for each in changes if each["event"] and is_open(each)]
    found: dict[str, Any] = {"schema": 1, "night": None, "pairs": []}
    if entry is not None and night is not None:
        found["night"] = {
            key: entry[key] for key in ("name", "at", "verdict", "versions", "device")
        }
        found["night"]["page"] = _locate(f"{quote(entry['name'], safe='')}/index.html")
        found["pairs"] = [_describe_pair(each) for each in night["cells"] if each["counts"]]
    found["open_events"] = [
        {"id": each["event"]["id"], "text": describe_change(each)} for each in events
    ]
    return found


def _describe_pair(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Natural logs of PyTorch's time over JAX's, as the dashboard has them."""
    shown = (
        "words",
        "model",
        "use_case",
        "precision",
        "batch",
        "device",
        "pair",
        "fair",
        "verdict",
    )
    logs = {
        f"{key}_ratio" if key == "log" else f"log_{key}": cell[key]
        for key in ("log", "low", "high")
    }
    return {**{key: cell[key] for key in shown}, **logs, "duel_run": cell["run"]}


def _as_json(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"

"""The feed, badges, the last night and W&B's report are well-formed, and say what the pages say."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from dashboard_nights import ADHOC, HOSTILE, NIGHTS, name_night

from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.reports.changes import list_changes
from dashboards.to_wandb.content import gather_report
from dashboards.website.files import WebsiteFiles
from dashboards.website.outputs.machine_files import list_badges, write_feed

ATOM = {"a": "http://www.w3.org/2005/Atom"}


def test_the_feed_has_an_entry_per_confirmed_change(
    nights: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = ET.fromstring((nights.website / "feed.xml").read_text())
    (entry,) = feed.findall("a:entry", ATOM)
    assert "MLP, training, batch 128, fp32" in str(entry.findtext("a:title", "", ATOM))
    for tag in ("id", "updated", "published", "summary"):
        assert entry.findtext(f"a:{tag}", "", ATOM), tag
    assert feed.findtext("a:updated", "", ATOM) == entry.findtext("a:updated", "", ATOM)
    (link,) = entry.findall("a:link", ATOM)
    assert link.attrib["href"] == "events.html#event-1"

    (change,) = [e for e in list_changes(open_database(nights.database_url)) if e["event"]]
    monkeypatch.setenv("DEADHEAT_DASHBOARD_URL", "https://example.org/heat/")
    hostile = {**change, "finding": None, "reason": f"{HOSTILE}\x00 & more"}
    feed = ET.fromstring(write_feed([hostile]))
    (summary,) = feed.findall(".//a:summary", ATOM)
    assert f"{HOSTILE}? & more" in str(summary.text) and len(summary) == 0
    (link,) = feed.findall("a:entry/a:link", ATOM)
    assert link.attrib["href"] == "https://example.org/heat/events.html#event-1"
    assert ET.fromstring(write_feed([])).findall("a:entry", ATOM) == []


def test_badges_and_the_last_night_say_what_the_site_says(website: Path) -> None:
    files = WebsiteFiles(website)
    night = files.read(f"campaigns/{name_night(NIGHTS - 1)}")
    badge = json.loads((website / "badges" / "tonight.json").read_text())
    assert badge["schemaVersion"] == 1 and night["sentence"].startswith(badge["message"][:100])
    events = json.loads((website / "badges" / "events.json").read_text())
    assert (events["message"], events["color"]) == ("1 open event", "orange")

    latest = json.loads((website / "latest.json").read_text())
    assert latest["night"]["verdict"] == night["sentence"]
    assert len(latest["pairs"]) == sum(cell["counts"] for cell in night["cells"]) > 0
    assert len(latest["pairs"]) < len(night["cells"])
    assert all(pair["log_low"] <= pair["log_ratio"] <= pair["log_high"] for pair in latest["pairs"])
    assert [each["id"] for each in latest["open_events"]] == [1]

    catalog = files.read("catalog")
    void = {
        **catalog,
        "campaigns": [
            {**e, "counts": {**e["counts"], "counting": 0}} for e in catalog["campaigns"]
        ],
    }
    assert list_badges(void, [], night)["tonight"]["message"] == "nothing counts"
    assert list_badges(catalog, [], None)["tonight"]["message"] == "no night yet"


def test_a_wandb_report_has_the_verdict_and_the_changes_of_the_site(
    nights: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADHEAT_DASHBOARD_URL", "https://race.example")
    found = gather_report(nights, name_night(NIGHTS - 1))
    assert found is not None
    listed = WebsiteFiles(nights.website).read("catalog")["campaigns"]
    assert found["verdict"] in [
        each["verdict"] for each in listed if each["name"] == found["campaign"]
    ]
    for each in found["changes"]:
        assert each["link"].startswith("https://race.example/series.html#")
    assert found["changes"] and found["speedups"]
    assert gather_report(nights, name_night(0)) is None, "only the newest night has a report"
    assert gather_report(nights, ADHOC) is None

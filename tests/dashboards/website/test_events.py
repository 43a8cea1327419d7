"""What the page of events shows: each event with its evidence, and commands that run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from dashboard_nights import ADHOC, DEVICE, HOSTILE

from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.reports.changes import list_changes
from benchcore.verdict.history.series import SeriesKey
from dashboards.website.events import events_page, list_commands

KEY = SeriesKey(
    workload="mlp",
    case_name="train_b128",
    track="default",
    a_arm="jax-jit",
    b_arm="torch-compile",
    device_fingerprint="f" * 16,
)


@pytest.mark.parametrize("versions", [("0.9.0", "0.10.0"), ("0.10.0", "0.9.0")])
def test_a_search_names_the_older_version_first_also_after_a_release_was_withdrawn(
    versions: tuple[str, str],
) -> None:
    before, after = versions
    change = {
        "key": KEY,
        "event": {"id": 3},
        "versions": {"before": (before, "2.0"), "after": (after, "2.0")},
        "case": {"device": "cpu", "site": "local"},
    }
    compare, search, _ = list_commands(change).splitlines()
    assert "--a jax==0.9.0 --b jax==0.10.0" in compare
    assert "--good 0.9.0 --bad 0.10.0 --event 3" in search


def _find(blocks: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """The only block with these values."""
    (found,) = (each for each in blocks if wanted.items() <= each.items())
    return found


def test_an_event_has_its_size_interval_versions_owner_and_age_and_open_ones_are_first(
    nights: State,
) -> None:
    changes = list_changes(open_database(nights.database_url))
    (change,) = (each for each in changes if each["event"])
    closed = {**change, "event": {**change["event"], "id": 2, "state": "fixed", "owner": None}}
    now = change["event"]["opened_at"] + timedelta(days=3, hours=5)
    blocks = events_page([closed, *changes], now)["blocks"]
    assert str(blocks[0]["parts"][0]).startswith("1 open event of 2; ")
    row, other = _find(blocks, name="events")["rows"]
    shown = {name: each["text"] if isinstance(each, dict) else each for name, each in row.items()}
    assert shown == {
        "what": "event 1",
        "case": "MLP, training, batch 128, fp32",
        "metric": "Step time",
        "size": "1.06x, worse",
        "culprit": "JAX",
        "versions": "JAX 0.12.0 \u2192 0.12.1, PyTorch 2.14.1 \u2192 2.15.0",
        "state": "untriaged",
        "owner": "ada",
        "age": "3 d",
        "reason": "the change follows JAX through fresh starts of both versions",
    }
    assert row["size"]["note"] == "1.05x to 1.07x" and row["age"]["value"] == 3
    assert row["what"]["href"] == "events.html#event-1"
    assert (other["what"]["text"], other["state"]["text"], other["owner"]) == (
        ("event 2", "fixed", None)
    )


def test_an_event_has_its_evidence(nights: State) -> None:
    changes = list_changes(open_database(nights.database_url))
    (change,) = (each for each in changes if each["event"])
    package = {"side": "a", "kind": "package", "name": "jaxlib", "old": "0.12.0", "new": "0.12.1"}
    found = {**change, "finding": {**change["finding"], "candidates": [package]}}
    page = events_page([found], change["event"]["opened_at"])
    event = _find(_find(page["blocks"], id="evidence")["blocks"], id="event-1")
    assert event["summary"] == "Event 1: MLP, training, batch 128, fp32: Step time, 1.06x, worse"
    links = {each["text"]: each["href"] for each in event["blocks"][1]["parts"] if "href" in each}
    assert links["duel before"] == f"duel.html#run={change['before_run']}"
    assert links["duel after"] == f"duel.html#run={change['after_run']}"
    assert change["before_run"] != change["after_run"]
    assert links["history"].startswith("series.html#case=mlp.train_b128.")
    facts = dict(_find(event["blocks"], kind="facts")["pairs"])
    assert facts["Found"] == "the change follows JAX through fresh starts of both versions"
    assert facts["Device"] == DEVICE and "investigating" in facts["Next states"]
    assert facts["First seen"].endswith((", as a new level in the history", ", with a new version"))
    assert facts["Measured again in"] == {"text": ADHOC, "href": f"{ADHOC}/index.html"}
    assert _find(event["blocks"], name="candidates")["rows"] == [package]
    history = _find(event["blocks"], name="done")["rows"]
    assert [each["who"] for each in history] == ["deadheat", "ada"]
    assert history[1]["note"] == f"owner: ada; looking {HOSTILE}"

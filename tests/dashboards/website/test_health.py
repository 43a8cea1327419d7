"""Health counts what the pipeline itself got wrong, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dashboard_nights import ADHOC, HOSTILE, LAST, NIGHTS, name_night
from page_visits import CRASHED

from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.frames.ratios import ratio_frame
from dashboards.website.files import WebsiteFiles
from dashboards.website.health import health_page

NAMES = [name_night(night) for night in range(NIGHTS)]
NOTHING: dict[str, Any] = {"runs": [], "unfinished": []}


@pytest.fixture
def catalog(nights: State) -> dict[str, Any]:
    """Each night took ten minutes, half of them in duels, and 1 MiB of the dashboard."""
    found: dict[str, Any] = WebsiteFiles(nights.website).read("catalog")
    for each in found["campaigns"]:
        each |= {"wall_s": 600.0, "measuring_s": 300.0, "bytes": 2**20}
    assert [each["name"] for each in found["campaigns"]] == [*NAMES, ADHOC]
    return found


def _read_section(page: dict[str, Any], id: str) -> dict[str, Any]:
    """The first block of a section."""
    (section,) = (each for each in page["blocks"] if each.get("id") == id)
    return section["blocks"][0]


def test_refused_documents_are_named_with_their_reasons(
    tmp_path: Path, catalog: dict[str, Any]
) -> None:
    state = open_state(tmp_path)
    nothing = _read_section(health_page(state, catalog, NOTHING), "refused")
    assert nothing["parts"] == ["No document was refused."]
    for name, reason in {"b.json": HOSTILE, "a.json": "wanted schema 1, got 9\n"}.items():
        (state.rejected / name).write_text("{}")
        (state.rejected / f"{name}.reason.txt").write_text(reason)
    page = health_page(state, catalog, NOTHING)
    assert _read_section(page, "refused")["rows"] == [
        {"document": "a.json", "reason": "wanted schema 1, got 9"},
        {"document": "b.json", "reason": HOSTILE},
    ]
    assert page["blocks"][0]["parts"] == [
        f"In {NIGHTS} nights: 0 without a pair that counts, 0 with missing duels; 2 documents "
        "refused."
    ]


def test_void_pairs_are_counted_by_cause(
    nights: State, tmp_path: Path, catalog: dict[str, Any]
) -> None:
    ratios = ratio_frame(open_database(nights.database_url), NAMES)
    void = ratios.loc[ratios["counts"].eq(False)]
    crashed = int(void["duel_run"].eq(CRASHED).sum())
    assert 0 < crashed < len(void)
    page = health_page(open_state(tmp_path), catalog, NOTHING)
    rows = _read_section(page, "void-causes")["rows"]
    counts = {row["cause"]: row["pairs"] for row in rows}
    assert counts == {"a contender crashed": crashed, "outputs differ": len(void) - crashed}
    for row in rows:
        assert row["share"]["value"] == row["pairs"] / len(ratios)
        assert row["last"]["text"] == f"{LAST:%Y-%m-%d}"
        assert row["last"]["href"] == f"{NAMES[-1]}/index.html#voids"
    (check,) = _read_section(page, "checks")["rows"]
    assert (check["suite"], check["count"], check["effect"]) == (
        ("equivalence", 1, "does not count")
    )


@pytest.mark.parametrize(
    ("alarms", "answer"),
    [
        (
            {"hits": 0, "total": 6, "share": 0.0, "low": 0.0, "high": 0.46, "too_few": True},
            "0 of 6 runs in which nothing changed gave a false alarm: too few runs; at least 10 "
            "are needed. 6 calibration runs judged.",
        ),
        (
            {"hits": 1, "total": 200, "share": 0.005, "low": 0.0, "high": 0.028, "too_few": False},
            "1 of 200 runs in which nothing changed gave a false alarm: 0 % (0 to 3 %). "
            "200 calibration runs judged.",
        ),
    ],
)
def test_how_often_alerts_are_wrong_is_answered_first(
    tmp_path: Path, catalog: dict[str, Any], alarms: dict[str, Any], answer: str
) -> None:
    run = {"series": "mlp train_b128: jax-jit", "slowed": None, "measured": None, "starts": 5}
    run |= {"outcome": "right", "culprit": None}
    found = {"runs": [run] * alarms["total"], "unfinished": [], "lost": [], "smallest": []}
    found |= {"rates": [{"rate": "false alarms", **alarms}], "fewest_runs": 10}
    page = health_page(open_state(tmp_path), catalog, found)
    assert _read_section(page, "error-rates")["parts"] == [answer]


def test_time_and_disk_are_summed_over_the_nights(tmp_path: Path, catalog: dict[str, Any]) -> None:
    state = open_state(tmp_path)
    (tmp_path / "deadheat.db").write_bytes(bytes(3 * 2**20))
    facts = _read_section(health_page(state, catalog, NOTHING), "costs")["pairs"]
    assert dict(facts) == {
        "Time of these nights": "2 h 20 min",
        "Part in duels": "70 min",
        "Dashboard, per night": "1.00 MiB",
        "Database": "3.00 MiB",
    }

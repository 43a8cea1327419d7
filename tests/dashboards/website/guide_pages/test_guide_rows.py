"""A night reads the answers of its own cases again, and the dashboard remembers the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from result_documents import JAX, TORCH, make_document
from sent_statements import record_statements
from sqlalchemy import event
from stored_histories import store_history

from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.reports.guide import list_answers, pick_amounts
from dashboards.website.files import WebsiteFiles
from dashboards.website.gather import read_campaigns
from dashboards.website.guide_pages.rows import refresh_guide_rows

FAST_TORCH = replace(TORCH, step_ns=JAX.step_ns / 2)


def _night(campaign: str, day: int, case: str, torch: Any = TORCH) -> dict[str, Any]:
    document = make_document([JAX, torch], duel_run=f"{day:016x}")
    document["campaign"] = campaign
    document["duel"] |= {"case": case, "use_case": "op"}
    for key in ("started_at", "ended_at"):
        document["allocation"][key] = f"2026-11-{day:02}T03:00:00+00:00"
    return document


def test_a_night_that_was_read_is_not_read_again_for_its_answers(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    engine = open_database(state.database_url)
    store_history(engine, state, [_night("first", 1, "small"), _night("first", 2, "large")])
    (night,) = read_campaigns(state, engine, ["first"])
    found = list[Any]()

    def read(**known: Any) -> list[str]:
        sent = record_statements(
            engine, lambda: found.append(list_answers(engine, campaigns=["first"], **known))
        )
        return [text for text, _ in sent]

    whole = read()
    fewer = read(amounts=pick_amounts(night.rows("contenders")))
    assert found[0] == found[1] == list_answers(engine)
    assert found[0][0]["of_a"]["median_step_ns"]
    assert any("start_run" in each for each in whole)
    assert not any("start_run" in each for each in fewer)
    # One for each answer: the pair of earlier versions.
    assert sum("ratio" in each and "LIMIT" in each for each in fewer) == len(found[0]) == 2
    engine.dispose()


def test_answers_of_other_cases_are_remembered(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    engine = open_database(state.database_url)
    store_history(
        engine,
        state,
        [
            _night("first", 1, "small"),
        ],
    )
    store_history(engine, state, [_night("second", 2, "large")])
    files = WebsiteFiles(state.website)
    first = refresh_guide_rows(files, engine, ["first", "second"])
    assert [each["case_name"] for each in first] == ["large", "small"]
    files.flush()

    store_history(engine, state, [_night("third", 3, "large", FAST_TORCH)])
    read: list[Any] = []

    def watch(*sent: Any) -> None:
        read.append(sent[3])

    event.listen(engine, "before_cursor_execute", watch)
    again = refresh_guide_rows(WebsiteFiles(state.website), engine, ["third"])
    event.remove(engine, "before_cursor_execute", watch)
    assert not any("small" in values for values in read if values)
    assert again == list_answers(engine) and again != first
    assert [each["faster"] for each in again] == ["torch", first[1]["faster"]]
    assert (
        refresh_guide_rows(WebsiteFiles(state.website), engine, ["first", "second", "third"])
        == again
    )
    engine.dispose()

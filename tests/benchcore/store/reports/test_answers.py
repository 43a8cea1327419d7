"""The Guide's answers of a campaign are those of all its cases, read with few queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from result_documents import JAX, TORCH, make_document
from sent_statements import record_statements
from sqlalchemy import text, update
from sqlalchemy.orm import Session
from stored_histories import store_history

from benchcore.state import State
from benchcore.store.database import Engine, begin_writing
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.models import DuelRun, PairRatio
from benchcore.store.reports.guide import list_answers

CASES = ("base", "large", "small", "tiny")
JAX_LEADS, TORCH_LEADS, NOBODY = (replace(TORCH, step_ns=JAX.step_ns * f) for f in (2, 0.5, 1))
TORCHES = {
    "base": (TORCH_LEADS, JAX_LEADS, JAX_LEADS, JAX_LEADS),
    "large": (JAX_LEADS, JAX_LEADS, TORCH_LEADS, TORCH_LEADS),
    "small": (TORCH_LEADS, TORCH_LEADS, TORCH_LEADS, NOBODY),
    "tiny": (JAX_LEADS, TORCH_LEADS, JAX_LEADS, TORCH_LEADS),
}
"""By case, PyTorch's contender of each night."""


@pytest.fixture
def nights(each_engine: Engine, state: State) -> Engine:
    """Four nights of four cases, two of them from a checkpoint; tiny's last one does not count."""
    for night in range(4):
        documents = list[dict[str, Any]]()
        for number, case in enumerate(CASES):
            run = f"{night:08x}{number:08x}"
            documents.append(make_document([JAX, TORCHES[case][night]], duel_run=run))
            documents[-1]["campaign"] = f"night-{night + 1}"
            documents[-1]["duel"] |= {"case": case, "use_case": "op"}
            for key in ("started_at", "ended_at"):
                documents[-1]["allocation"][key] = f"2026-11-{night + 1:02}T0{number}:00:00+00:00"
        store_history(each_engine, state, documents, wrong=[3] if night == 3 else [])
    with begin_writing(each_engine) as session:
        from_checkpoint = DuelRun.case_name.in_(("large", "tiny"))
        session.execute(update(DuelRun).where(from_checkpoint).values(checkpoint="c" * 64))
    return each_engine


def test_answers_are_the_newest_pairs_that_count(nights: Engine) -> None:
    answers = list_answers(nights, campaigns=["night-4"])
    assert answers == list_answers(nights)
    assert [each["case_name"] for each in answers] == list(CASES)
    frame = ratio_frame(nights)
    for answer in answers:
        of_case = frame.loc[(frame["case_name"] == answer["case_name"]) & frame["counts"]]
        newest = of_case.sort_values("started_at").iloc[-1]
        assert answer["duel_run"] == newest["duel_run"]
        for key in ("log_ratio", "low", "high", "verdict", "started_at", "a", "b"):
            assert answer[key] == newest[key], key
        leads = newest["verdict"] == "different"
        assert answer["faster"] == (
            None if not leads else "jax" if newest["log_ratio"] > 0 else "torch"
        )
        step_ns = answer["of_a"]["median_step_ns"]
        assert answer["counts"] and step_ns == pytest.approx(JAX.step_ns, rel=0.01)
    shown = {each["case_name"]: each["since"] for each in answers}
    assert shown.pop("small") is None
    assert {case: (since["started_at"].day, since["always"]) for case, since in shown.items()} == {
        "base": (2, False),
        "large": (3, False),
        "tiny": (3, False),
    }


def test_answers_of_a_campaign_are_those_of_its_cases(nights: Engine, state: State) -> None:
    document = make_document([JAX, JAX_LEADS], duel_run="f" * 16)
    document["campaign"] = "another"
    document["duel"] |= {"case": "base", "use_case": "op"}
    store_history(nights, state, [document])
    every = list_answers(nights)
    assert [each for each in every if each["case_name"] == "base"] == (
        list_answers(nights, campaigns=["another"])
    )
    assert list_answers(nights, campaigns=["another", "night-1"]) == every
    assert list_answers(nights, campaigns=["no-such"]) == []


def test_one_query_finds_the_pairs_of_all_cases_by_an_index(nights: Engine) -> None:
    sent = record_statements(nights, lambda: list_answers(nights, campaigns=["night-4"]))
    texts = {statement for statement, _ in sent if "ratio" in statement}
    groups = [statement for statement, _ in sent if "GROUP BY" in statement]
    assert len(groups) == 1
    (own,) = [statement for statement, _ in sent if "is_counted" in statement]
    assert len(texts - {own}) <= 5, "the groups, newest, since when (of each side), the earlier one"
    with Session(nights) as session:
        if nights.dialect.name == "postgresql":
            session.execute(text("SET enable_seqscan = off"))
        explain = "EXPLAIN" if nights.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"
        for statement, values in sent:
            if statement not in texts:
                continue
            connection = session.connection()
            steps = connection.exec_driver_sql(f"{explain} {statement}", values).all()
            plan = " ".join(str(each[-1]) for each in steps)
            index = "ix_duel_run_campaign_started_at" if statement == own else "ix_duel_run_series"
            assert index in plan, plan


def _remember(engine: Engine, stored: Sequence[Mapping[str, Any]], *campaigns: str) -> list[Any]:
    return list_answers(engine, campaigns=campaigns, remembered=stored)


def _forget(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: each[name] for name in each if name != "past"} for each in rows]


def test_remembered_cases_have_the_answers_that_all_nights_give(nights: Engine) -> None:
    stored = list[Mapping[str, Any]]()
    for night in ("night-1", "night-2", "night-3", "night-4", "night-4", "night-2"):
        stored = _remember(nights, stored, night)
        assert _forget(stored) == list_answers(nights), night
    assert {each["past"]["num_runs"] for each in stored} == {1}, "one night before the second"


@pytest.mark.parametrize("number", range(1, 5))
def test_a_night_reads_only_what_came_since_a_remembered_one(nights: Engine, number: int) -> None:
    stored = _remember(nights, (), *(f"night-{each}" for each in range(1, number + 1)))
    until = datetime(2026, 11, number, tzinfo=UTC)
    assert {each["past"]["until"] for each in stored} == {until}
    assert {each["past"]["num_runs"] for each in stored} == {number - 1}
    sent = record_statements(nights, lambda: _remember(nights, stored, "night-4"))
    groups = [values for text, values in sent if "ratio" in text and "GROUP BY" in text]
    assert len(groups) == len(CASES)
    assert all(f"2026-11-{number:02}" in str(values) for values in map(_show, groups))


def _show(values: Any) -> str:
    """The values of a statement as text, which drivers have as times or as text."""
    listed = values.values() if isinstance(values, Mapping) else values
    return " ".join(f"{each:%Y-%m-%d}" if hasattr(each, "year") else str(each) for each in listed)


def test_an_earlier_night_that_came_late_or_counts_no_more_is_noticed(
    nights: Engine, state: State
) -> None:
    stored = _remember(nights, (), "night-3")
    late = make_document([JAX, TORCH_LEADS], duel_run="e" * 16)
    late["campaign"] = "late"
    late["duel"] |= {"case": "base", "use_case": "op"}
    for key in ("started_at", "ended_at"):
        late["allocation"][key] = "2026-11-02T12:00:00+00:00"
    store_history(nights, state, [late])
    again = _remember(nights, stored, "night-4")
    assert _forget(again) == list_answers(nights)
    (base,) = [each for each in again if each["case_name"] == "base"]
    assert base["since"]["started_at"].day == 3, "PyTorch led once more, in the night that was late"
    with begin_writing(nights) as session:
        session.execute(update(PairRatio).values(counts=False))
    assert _forget(_remember(nights, again, "night-4")) == list_answers(nights)
    assert not any(each["counts"] for each in list_answers(nights))


def test_nothing_is_remembered_while_another_campaign_was_not_judged(nights: Engine) -> None:
    with begin_writing(nights) as session:
        others = DuelRun.campaign.in_(("night-1", "night-4"))
        session.execute(update(DuelRun).where(others).values(checked_at=None))
    stored = _remember(nights, (), "night-4")
    assert [each["past"] for each in stored] == [None] * len(CASES)
    stored = _remember(nights, (), "night-1", "night-4")
    assert None not in [each["past"] for each in stored]

"""The Guide's answers of a campaign are those of all its cases, read with few queries."""

from __future__ import annotations

from dataclasses import replace
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
from benchcore.store.models import DuelRun
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
    assert len(texts) <= 5, "of the groups, the newest, since when (of each side), the earlier one"
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
            assert "ix_duel_run_series" in plan, plan

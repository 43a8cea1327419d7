"""Workarounds over several campaigns: still needed or not, their price, and what was kept."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from result_documents import JAX, OLD_JAX, Racer, make_document, spool_document
from sent_statements import record_statements

from benchcore.cell.failures.workarounds import WORKAROUNDS
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import judge_campaign, replace_failed_checks
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.workarounds import list_crashed, list_workarounds
from dashboards.listings.workarounds import describe_workarounds

_AVOIDED = dataclasses.replace(OLD_JAX, status="workaround")
_LADDER = {
    "helped": 3,
    "attempts": [],
    "highest": {"status": "ok", "cause": None, "stage": None, "reason": None},
    "hlo": {
        "folder": "hlo/jax-0.8",
        "files": ["module_0001.m.before_optimizations.txt"],
        "bytes": 10,
        "left_out": 0,
        "crashed_again": True,
        "command": "run_hlo_module m.txt",
    },
}


def _spool(state: State, number: int, *racers: Racer, **changes: Any) -> None:
    """A campaign of one duel; who has the status `workaround` has a ladder."""
    document = make_document(
        racers, duel_run=f"{number:016x}", campaign=changes.pop("campaign", f"night-{number}")
    )
    started = f"2026-01-01T00:{number:02d}:00+00:00"
    document["allocation"]["started_at"] = started
    document["duel"].update(changes)
    for contender in document["contenders"]:
        contender["ladder"] = _LADDER if contender["status"] == "workaround" else None
    spool_document(state.spool, document)


def _list(engine: Engine, state: State, campaign: str) -> list[dict[str, Any]]:
    ingest_spool(engine, state)
    return list_workarounds(engine, campaign, list_crashed(engine))


def test_an_earlier_workaround_is_reported_in_the_night_that_no_longer_needs_it(
    engine: Engine, state: State
) -> None:
    _spool(state, 1, _AVOIDED)
    _spool(state, 2, JAX)
    rows = _list(engine, state, "night-2")
    assert len(rows) == 1
    row = rows[0]
    assert row["still_needed"] == "needed with 0.8.2, no longer with 0.9.0"
    assert (row["case"], row["workaround"]) == ("mlp tiny", WORKAROUNDS[2].describe())
    assert row["hlo"] == "campaigns/night-1/duels/0000000000000001/hlo/jax-0.8"
    (words,) = describe_workarounds([row])
    assert words["workaround"].endswith("; runs with precision highest, which is a different case")
    assert words["to report upstream"] == f"{row['hlo']}: run_hlo_module m.txt"


def test_several_are_listed_in_the_order_of_their_first_runs(engine: Engine, state: State) -> None:
    cases = ("zeta", "alpha", "mid")
    for number, case in enumerate(cases):
        _spool(state, number, _AVOIDED, case=case)
        _spool(state, 10 + number, JAX, case=case, campaign="later")
    _spool(state, 20, JAX, case="healthy", campaign="later")
    rows = _list(engine, state, "later")
    assert [row["case"] for row in rows] == [f"mlp {case}" for case in cases]
    assert list_workarounds(engine, "later", set()) == []


def test_a_case_that_never_crashed_is_not_listed_nor_one_of_another_campaign(
    engine: Engine, state: State
) -> None:
    _spool(state, 1, _AVOIDED)
    _spool(state, 2, JAX, case="other")
    assert _list(engine, state, "night-2") == []


def test_the_price_is_measured_on_a_healthy_case_of_the_same_campaign(
    engine: Engine, state: State
) -> None:
    _spool(state, 1, _AVOIDED)
    _spool(state, 2, OLD_JAX, campaign="night-1", workload="matmul")
    _spool(state, 3, OLD_JAX, campaign="night-1", workload="resnet50", case="infer_b8")
    _spool(state, 4, JAX, campaign="night-1", workload="resnet50")
    (row,) = _list(engine, state, "night-1")
    assert row["cost"] is None
    assert row["cost_command"] == (
        "deadheat compare resnet50 --case infer_b8 --a jax==0.8.2 --b jax==0.8.2 "
        "--b-set workaround=no-triton-gemm --device cpu"
    )
    (words,) = describe_workarounds([row])
    assert words["cost"] == f"not measured; run {row['cost_command']}"


def test_without_a_healthy_sibling_there_is_no_command(engine: Engine, state: State) -> None:
    _spool(state, 1, _AVOIDED)
    (row,) = _list(engine, state, "night-1")
    assert (row["cost"], row["cost_command"]) == (None, None)
    _spool(state, 2, OLD_JAX, campaign="night-1", workload="matmul")  # lacks the setting
    _spool(state, 3, OLD_JAX, campaign="night-1", workload="gone-by-now")
    (row,) = _list(engine, state, "night-1")
    assert row["cost_command"] is None


@pytest.mark.parametrize("counts", [True, False])
def test_the_price_is_the_time_with_the_flag_over_the_time_without(
    engine: Engine, state: State, counts: bool
) -> None:
    _spool(state, 1, _AVOIDED)
    slower = dataclasses.replace(
        OLD_JAX, name="jax-workaround", arm="jax-jit-workaround-no-triton-gemm", step_ns=1.5e6
    )
    _spool(state, 2, slower, OLD_JAX, campaign="compare-1", workload="resnet50")
    ingest_spool(engine, state)
    if counts:
        replace_failed_checks(engine, "compare-1", [])
    judge_campaign(engine, "compare-1")
    (row,) = list_workarounds(engine, "night-1", list_crashed(engine))
    if counts:
        assert row["cost"]["factor"] == pytest.approx(1.5, rel=0.01)
        assert row["cost"]["low"] <= row["cost"]["factor"] <= row["cost"]["high"]
        (words,) = describe_workarounds([row])
        assert words["cost"].endswith("the time of resnet50 tiny (0.8.2)")
    else:
        assert row["cost"] is None


def test_crash_ladders_are_found_without_reading_other_contenders(
    engine: Engine, state: State
) -> None:
    _spool(state, 1, _AVOIDED)
    _spool(state, 2, JAX)
    ingest_spool(engine, state)
    assert [arm for *_, arm in list_crashed(engine)] == ["jax-jit"]
    sent = record_statements(engine, lambda: list_crashed(engine))[-1]
    with engine.connect() as connection:
        steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sent[0]}", sent[1]).all()
    assert "INDEX ix_contender_run_ladder" in str(steps[0]), steps
    assert not [each for each in steps if "SCAN" in str(each)], steps

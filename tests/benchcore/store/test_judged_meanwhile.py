"""A campaign is checked and judged while another process ingests, removes or judges its duels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from result_documents import CAMPAIGN, DUEL_RUN, JAX, TORCH, make_document, spool_document

from benchcore.state import State
from benchcore.store import duels
from benchcore.store.database import Engine
from benchcore.store.duels import (
    judge_campaign,
    read_duels,
    remove_duel,
    replace_failed_checks,
    replace_ratios,
)
from benchcore.store.frames.duels import failed_check_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.records import FailedCheck
from benchcore.verdict.duel.ratios import judge_duel

LATE_RUN = "f" * 16
WAIT_S = 0.5
"""A second process has begun by then, and waits for the first one."""


def _ingest(engine: Engine, state: State, duel_run: str) -> None:
    spool_document(state.spool, make_document((JAX, TORCH), duel_run=duel_run))
    assert not ingest_spool(engine, state).rejected


def _failed(duel_run: str) -> FailedCheck:
    of = {"suite": "nightly contenders", "expectation": "finished", "reason": "status is 'oom'"}
    return FailedCheck(duel_run=duel_run, contender=None, other=None, **of)


def _before(
    name: str, do: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Do this once, before a function of the module is called."""
    real, waiting = getattr(duels, name), [do]

    def call(*given: Any, **named: Any) -> Any:
        while waiting:
            waiting.pop()()
        return real(*given, **named)

    monkeypatch.setattr(duels, name, call)
    return call


def test_a_duel_that_is_ingested_meanwhile_is_judged_later(
    each_engine: Engine, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ingest(each_engine, state, DUEL_RUN)
    _before("_read_records", lambda: _ingest(each_engine, state, LATE_RUN), monkeypatch)
    assert len(judge_campaign(each_engine, CAMPAIGN)) == 1
    assert {*ratio_frame(each_engine)["duel_run"]} == {DUEL_RUN}
    assert len(judge_campaign(each_engine, CAMPAIGN)) == 2


def test_a_duel_is_read_with_its_contenders_or_not_at_all(
    each_engine: Engine, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ingest(each_engine, state, DUEL_RUN)
    _before("_read_failed_checks", lambda: _ingest(each_engine, state, LATE_RUN), monkeypatch)
    assert [len(each.sides) for each in read_duels(each_engine, CAMPAIGN)] == [2]


def test_a_duel_that_is_removed_meanwhile_has_no_ratio(
    each_engine: Engine, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ingest(each_engine, state, DUEL_RUN)
    _ingest(each_engine, state, LATE_RUN)
    _before("replace_ratios", lambda: remove_duel(each_engine, LATE_RUN), monkeypatch)
    judge_campaign(each_engine, CAMPAIGN)
    assert {*ratio_frame(each_engine)["duel_run"]} == {DUEL_RUN}


def test_a_duel_that_is_removed_meanwhile_has_no_failed_checks(
    each_engine: Engine, state: State
) -> None:
    _ingest(each_engine, state, DUEL_RUN)
    failed = [_failed(DUEL_RUN), _failed(LATE_RUN)]
    replace_failed_checks(each_engine, CAMPAIGN, failed, checked=[DUEL_RUN, LATE_RUN])
    assert [*failed_check_frame(each_engine)["duel_run"]] == [DUEL_RUN]


@pytest.mark.parametrize("what", ["ratios", "failed checks"])
def test_two_processes_double_nothing(each_engine: Engine, state: State, what: str) -> None:
    _ingest(each_engine, state, DUEL_RUN)
    (record,) = read_duels(each_engine, CAMPAIGN)

    def store(rows: Any) -> None:
        if what == "ratios":
            replace_ratios(each_engine, {DUEL_RUN: rows})
        else:
            replace_failed_checks(each_engine, CAMPAIGN, rows)

    rows = judge_duel(record.sides) if what == "ratios" else [_failed(DUEL_RUN)]
    with ThreadPoolExecutor(1) as other:

        def meanwhile() -> Iterator[Any]:
            """The first process is within its transaction."""
            begun = other.submit(store, rows)
            with pytest.raises(TimeoutError):
                begun.result(WAIT_S)
            yield from rows

        store(meanwhile())
    stored = ratio_frame(each_engine) if what == "ratios" else failed_check_frame(each_engine)
    assert len(stored) == 1

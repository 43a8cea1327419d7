from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from result_documents import CAMPAIGN, DUEL_RUN, JAX, OLD_JAX, TORCH, make_document, spool_document
from sent_statements import record_statements

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import (
    judge_campaign,
    list_campaigns,
    list_newest_campaigns,
    list_unchecked_campaigns,
    read_duels,
    replace_failed_checks,
    replace_ratios,
)
from benchcore.store.frames.duels import failed_check_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.records import FailedCheck
from benchcore.verdict.duel.ratios import Exclusion, judge_duel

OTHER_RUN = "f" * 16
MARK = FailedCheck(
    duel_run=DUEL_RUN,
    contender="jax-0.9",
    other=None,
    suite="nightly contenders",
    expectation="finished",
    reason="status is 'oom'",
)
ON_PAIR = dataclasses.replace(MARK, other="torch-2.10", reason="no proof")
ON_DUEL = dataclasses.replace(MARK, contender=None, reason="other inputs")


@pytest.fixture
def filled(engine: Engine, state: State) -> Engine:
    racers = (JAX, dataclasses.replace(TORCH, step_ns=2e6), OLD_JAX)
    spool_document(state.spool, make_document(racers))
    spool_document(state.spool, make_document(racers, duel_run=OTHER_RUN, campaign="other"))
    ingest_spool(engine, state)
    return engine


def test_what_was_not_checked_is_found_without_reading_other_duel_runs(filled: Engine) -> None:
    replace_failed_checks(filled, CAMPAIGN, [])
    assert list_unchecked_campaigns(filled) == ["other"]
    sent = record_statements(filled, lambda: list_unchecked_campaigns(filled))[-1]
    with filled.connect() as connection:
        steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sent[0]}", sent[1]).all()
    assert str(steps[0][-1]) == "SCAN duel_run USING INDEX ix_duel_run_unchecked", steps


@pytest.mark.parametrize("most", [0, 1, 2, 3, 4, 5, 6, 7, 100])
def test_the_newest_campaigns_have_at_most_so_many_duel_runs(
    each_engine: Engine, state: State, most: int
) -> None:
    """Nights of two duels each; the second one was measured again after the third, and the last
    two began at the same time."""
    begun = {"a": (1, 2), "b": (3, 6), "c": (4, 5), "d": (7, 8), "e": (7, 8)}
    for campaign, days in begun.items():
        for number, day in enumerate(days):
            run = f"{campaign}{number:015x}"
            document = make_document(duel_run=run, campaign=campaign)
            document["allocation"] |= dict.fromkeys(
                ("started_at", "ended_at"), f"2026-11-{day:02}T03:00:00+00:00"
            )
            spool_document(state.spool, document)
    assert list_newest_campaigns(each_engine, most) == []
    ingest_spool(each_engine, state)
    assert list_campaigns(each_engine) == ["a", "b", "c", "d", "e"]
    newest = ["a", "c", "b", "d", "e"]
    assert list_newest_campaigns(each_engine, most) == newest[-max(1, min(most, 10) // 2) :]


def test_a_duel_comes_back_with_its_raw_times(filled: Engine) -> None:
    [record] = read_duels(filled, CAMPAIGN)
    assert (record.duel_run, record.campaign, record.checked, record.failed_checks) == (
        DUEL_RUN,
        CAMPAIGN,
        False,
        (),
    )
    assert [side.name for side in record.sides] == ["jax-0.9", "torch-2.10", "jax-0.8"]
    torch = record.sides[1]
    assert (torch.arm, torch.framework, torch.version, torch.role) == (
        "torch-compile",
        "torch",
        "2.10.0",
        "newest",
    )
    rounds = {0: 2_000_000.0, 1: 2_002_000.0, 2: 2_004_000.0, 3: 2_006_000.0}
    assert torch.starts == {0: rounds, 1: rounds, 2: rounds}


def test_new_failed_checks_replace_only_those_of_their_campaign(filled: Engine) -> None:
    elsewhere = dataclasses.replace(MARK, duel_run=OTHER_RUN)
    replace_failed_checks(filled, "other", [elsewhere])
    replace_failed_checks(filled, CAMPAIGN, [MARK, ON_PAIR])
    replace_failed_checks(filled, CAMPAIGN, [ON_DUEL, ON_PAIR])
    [record] = read_duels(filled, CAMPAIGN)
    assert (record.checked, record.failed_checks) == (True, (ON_DUEL, ON_PAIR))
    [other] = read_duels(filled, "other")
    assert other.failed_checks == (elsewhere,)
    assert list(failed_check_frame(filled)["reason"]) == [
        "other inputs",
        "no proof",
        "status is 'oom'",
    ]


def test_failed_checks_of_several_campaigns_are_replaced_together(filled: Engine) -> None:
    elsewhere = dataclasses.replace(MARK, duel_run=OTHER_RUN)
    replace_failed_checks(filled, CAMPAIGN, [ON_PAIR])
    replace_failed_checks(filled, [CAMPAIGN, "other"], [MARK, elsewhere])
    found = [(*read_duels(filled, each),) for each in (CAMPAIGN, "other")]
    assert [[(each.checked, each.failed_checks) for each in of_one] for of_one in found] == [
        [(True, (MARK,))],
        [(True, (elsewhere,))],
    ]


def test_a_failed_check_of_another_campaign_changes_nothing(filled: Engine) -> None:
    replace_failed_checks(filled, CAMPAIGN, [MARK])
    with pytest.raises(ValueError, match="got one of 'ffffffffffffffff'"):
        replace_failed_checks(filled, CAMPAIGN, [dataclasses.replace(MARK, duel_run=OTHER_RUN)])
    assert read_duels(filled, CAMPAIGN)[0].failed_checks == (MARK,)


def test_a_duel_that_was_never_checked_stays_unchecked(filled: Engine) -> None:
    replace_failed_checks(filled, CAMPAIGN, [], checked=())
    assert not read_duels(filled, CAMPAIGN)[0].checked
    replace_failed_checks(filled, CAMPAIGN, [], checked=[DUEL_RUN, OTHER_RUN])
    assert read_duels(filled, CAMPAIGN)[0].checked
    assert not read_duels(filled, "other")[0].checked


def test_new_ratios_replace_only_those_of_their_duel(filled: Engine) -> None:
    [record], [other] = read_duels(filled, CAMPAIGN), read_duels(filled, "other")
    replace_ratios(filled, {other.duel_run: judge_duel(other.sides)})
    for _ in range(2):
        replace_ratios(filled, {record.duel_run: judge_duel(record.sides)})
    assert len(ratio_frame(filled)) == 6
    replace_ratios(filled, {record.duel_run: []})
    assert list(ratio_frame(filled)["duel_run"]) == [OTHER_RUN] * 3


@pytest.mark.parametrize(
    ("mark", "excluded"),
    [
        (MARK, {("jax-0.9", "torch-2.10"), ("jax-0.9", "jax-0.8")}),
        (ON_PAIR, {("jax-0.9", "torch-2.10")}),
        (
            ON_DUEL,
            {("jax-0.9", "torch-2.10"), ("jax-0.9", "jax-0.8"), ("jax-0.8", "torch-2.10")},
        ),
    ],
    ids=["contender", "pair", "duel"],
)
def test_a_failed_check_excludes_the_pairs_that_it_names(
    mark: FailedCheck, excluded: set[tuple[str, str]], filled: Engine
) -> None:
    replace_failed_checks(filled, CAMPAIGN, [mark])
    ratios = judge_campaign(filled, CAMPAIGN)
    assert {(each.a, each.b) for each in ratios if not each.counts} == excluded
    assert {each.reason for each in ratios if not each.counts} == {mark.reason}
    assert all(each.log_ratio is not None for each in ratios)


def test_an_unchecked_duel_does_not_count(filled: Engine) -> None:
    ratios = judge_campaign(filled, CAMPAIGN)
    assert {(each.counts, each.verdict, each.reason) for each in ratios} == {
        (False, "unknown", "the data checks have not seen this duel run")
    }


def test_excluded_pairs_are_those_with_failed_checks(filled: Engine) -> None:
    replace_failed_checks(filled, CAMPAIGN, [MARK, ON_DUEL])
    [record] = read_duels(filled, CAMPAIGN)
    assert record.exclusions == [
        Exclusion(frozenset({"jax-0.9"}), "status is 'oom'"),
        Exclusion(frozenset(), "other inputs"),
    ]


def test_judging_stores_its_ratios(filled: Engine) -> None:
    replace_failed_checks(filled, CAMPAIGN, [])
    ratios = judge_campaign(filled, CAMPAIGN)
    frame = ratio_frame(filled, CAMPAIGN)
    found = {(row["a"], row["b"]): row for row in frame.to_dict("records")}
    assert len(found) == len(ratios) == 3
    across = found["jax-0.9", "torch-2.10"]
    assert across["log_ratio"] == pytest.approx(math.log(2))
    assert (across["kind"], across["verdict"], across["counts"], across["scope"]) == (
        "cross_framework",
        "different",
        True,
        "this node, within one compilation",
    )
    assert across["start_compilations"] == [0, 0, 0]  # the document is older than the field
    assert across["start_log_ratios"] == pytest.approx([math.log(2)] * 3)
    assert found["jax-0.9", "jax-0.8"]["verdict"] == "same"


def test_a_stored_interval_is_over_the_compilations_of_its_starts(
    engine: Engine, state: State
) -> None:
    """Compilations differ by 1 %, the two starts of each agree: of six starts that share one
    compilation the interval would be less than half as wide."""
    factors = (0.99, 1.0, 1.01, 0.99, 1.0, 1.01)
    found: list[dict[str, Any]] = []
    for number, compilations in enumerate((range(3), (0,))):
        document = make_document((dataclasses.replace(JAX, start_factors=factors), TORCH), starts=6)
        document |= {"campaign": f"c{number}", "duel_run": f"{number:016x}"}
        for contender in document["contenders"]:
            for start in contender["starts"]:
                start["compilation"] = start["index"] % len(compilations)
        for start in document["contenders"][1]["starts"]:
            start["compilation"] = None  # eager
        spool_document(state.spool, document)
        ingest_spool(engine, state)
        replace_failed_checks(engine, f"c{number}", [])
        judge_campaign(engine, f"c{number}")
        found += ratio_frame(engine, f"c{number}").to_dict("records")
    over, within = found
    assert over["scope"] == "this node, over 3 compilations"
    assert over["start_compilations"] == [0, 1, 2, 0, 1, 2]
    assert within["scope"] == "this node, within one compilation"
    assert within["high"] - within["low"] < (over["high"] - over["low"]) / 2


def test_the_bound_can_be_chosen(filled: Engine) -> None:
    replace_failed_checks(filled, CAMPAIGN, [])
    [record] = read_duels(filled, CAMPAIGN)
    verdicts = {each.verdict for each in judge_duel(record.sides, record.exclusions, 2.0)}
    assert verdicts == {"same"}
    assert {each.verdict for each in judge_campaign(filled, CAMPAIGN, equivalence_bound=2.0)} == {
        "same"
    }


def test_a_campaign_without_duels_has_nothing_to_judge(filled: Engine) -> None:
    assert judge_campaign(filled, "nothing") == []

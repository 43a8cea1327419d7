from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from result_documents import (
    CAMPAIGN,
    DUEL_RUN,
    JAX,
    OLD_JAX,
    TORCH,
    Racer,
    make_document,
    make_evidence,
    spool_document,
)

from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import judge_campaign, read_duels
from benchcore.store.frames.contenders import run_frames
from benchcore.store.incoming.ingest import ingest_spool
from data_checks import suites, validation
from data_checks.check import check_campaign, read_frames
from data_checks.rows import start_rows
from data_checks.suites import CheckReport, list_suites, run_checks
from data_checks.validation import CheckError, SuiteResult, validate

Document = dict[str, Any]
NOOP = Racer(name="noop", framework="stdlib", version="3.11", arm="noop")
NOOP_AGAIN = Racer(name="noop-again", framework="stdlib", version="3.11", arm="noop")


def ingest(state: State, *documents: Document) -> Engine:
    for document in documents:
        spool_document(state.spool, document)
    engine = open_database(f"sqlite:///{state.root / 'deadheat.db'}")
    assert ingest_spool(engine, state).rejected == ()
    return engine


def check(state: State, *documents: Document) -> CheckReport:
    engine = ingest(state, *documents)
    report = run_checks(read_frames(engine, CAMPAIGN))
    engine.dispose()
    return report


def found(report: CheckReport) -> set[tuple[str | None, str | None, str, str]]:
    return {
        (each.contender, each.other, each.expectation, each.reason) for each in report.failed_checks
    }


@pytest.mark.parametrize(
    "racers",
    [(JAX, TORCH), (JAX, OLD_JAX, TORCH), (JAX,), (NOOP,), (NOOP, NOOP_AGAIN)],
    ids=lambda racers: " ".join(racer.name for racer in racers),
)
def test_good_rows_pass(racers: tuple[Racer, ...], state: State) -> None:
    report = check(state, make_document(racers))
    assert (report.failed_checks, report.problems, report.success) == ((), (), True)
    assert report.checked == {DUEL_RUN}
    assert report.num_rows >= len(racers)
    assert sum(len(expectations) for *_, expectations in list_suites()) == 50


def test_a_program_without_a_framework_needs_no_input_check(state: State) -> None:
    document = make_document((NOOP,))
    for each in document["contenders"][0]["starts"]:
        each["inputs_sha256"] = None
    assert check(state, document).success


def test_a_replicate_may_be_slowed_down_in_a_calibration_run(state: State) -> None:
    document = make_document((JAX, TORCH))
    document["contenders"][0]["settings"]["injected_slowdown"] = "5"
    document["duel"]["track"] = "calibration"
    assert check(state, document).success


def start(document: Document, contender: int = 0, index: int = 1) -> Document:
    return document["contenders"][contender]["starts"][index]


def test_a_duel_from_the_future_fails_its_check(state: State) -> None:
    document = make_document()
    document["allocation"]["ended_at"] = "2126-01-02T03:14:05.250+00:00"
    report = check(state, document)
    assert {each.expectation for each in report.failed_checks} == {"not from the future"}


def test_a_planned_duel_without_a_result_is_a_problem_of_the_night(state: State) -> None:
    engine = ingest(state, make_document())
    came, lost = (SimpleNamespace(duel_run=each, title=each) for each in (DUEL_RUN, "f" * 16))
    planned: Any = (came, lost)
    report = check_campaign(engine, CAMPAIGN, planned=planned)
    assert report.failed_checks == () and not report.success
    assert report.problems == (
        f"planned duels received: {lost.title} was planned, but has no result",
    )
    assert check_campaign(engine, CAMPAIGN, planned=planned[:1]).success
    engine.dispose()


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf")])
def test_an_impossible_time_fails_its_check(value: float, state: State) -> None:
    engine = ingest(state, make_document())
    frames = read_frames(engine, CAMPAIGN)
    frames.starts.loc[2, "median_step_ns"] = value
    report = run_checks(frames)
    assert found(report) == {
        ("jax-0.9", None, "positive finite time", f"start 2 reports {value!r} ns per step")
    }
    engine.dispose()


@pytest.mark.parametrize(
    ("counter", "missing", "why"),
    [
        ("foreign_cpu_share", {}, "foreign_cpu_share: not counted"),
        ("throttle_reasons", {"throttle_reasons": "NVML: No Permission"}, ""),
    ],
)
def test_blocks_without_a_counter_of_disturbances_are_marked_and_count(
    counter: str, missing: dict[str, str], why: str, state: State
) -> None:
    """A CPU has no GPU's counters, and misses none."""
    document = make_document()
    block = start(document)["blocks"][2]
    block["telemetry"].update({counter: None, "missing": missing})
    block.update(elapsed_ns=10 * block["elapsed_ns"], steps=10 * block["steps"])
    start(document)["blocks"][1]["telemetry"]["foreign_cpu_share"] = None  # a short one
    engine = ingest(state, document)
    report = check_campaign(engine, CAMPAIGN)
    assert report.success
    assert found(report) == (
        {
            (
                "jax-0.9",
                None,
                "disturbances counted",
                f"start 1 has blocks without counters of disturbances ({why})",
            )
        }
        if why
        else set()
    )
    assert {each.severity for each in report.failed_checks} == ({"warning"} if why else set())
    assert all(each.counts for each in judge_campaign(engine, CAMPAIGN))
    engine.dispose()


def make_night(day: int, step_ns: float, arm: str = "jax") -> Document:
    jax = replace(JAX, step_ns=step_ns, arm=arm)
    night = {"duel_run": f"{day:016x}", "campaign": CAMPAIGN if day == 9 else f"night-{day}"}
    return date_document(make_document((jax, TORCH), **night), day, 3)


def date_document(document: Document, day: int, hour: int) -> Document:
    at = datetime(2026, 3, day, hour, tzinfo=UTC)
    document["allocation"].update(
        started_at=at.isoformat(), ended_at=(at + timedelta(minutes=10)).isoformat()
    )
    for contender in document["contenders"]:
        for each in contender["starts"]:
            each["started_at"] = at.isoformat()
    return document


@pytest.mark.parametrize(
    ("times", "num_nights", "arm", "marked"),
    [
        (1.6, 6, "jax", True),
        (0.5, 6, "jax", True),
        (1.4, 6, "jax", False),
        (1.6, 4, "jax", False),  # too few nights
        (1.6, 6, "jax-scan", False),  # another arm's past
    ],
)
def test_a_row_far_outside_its_own_past_is_marked_and_counts(
    times: float, num_nights: int, arm: str, marked: bool, state: State
) -> None:
    past = [make_night(1 + each, 1e6 * (1 + 0.01 * (each % 2))) for each in range(num_nights)]
    engine = ingest(state, *past, make_night(9, 1e6 * times, arm))
    report = check_campaign(engine, CAMPAIGN)
    assert report.success
    assert {(each.contender, each.expectation, each.severity) for each in report.failed_checks} == (
        {("jax-0.9", "near its own past", "warning")} if marked else set()
    )
    if times == 1.6 and marked:
        (reason,) = (each.reason for each in report.failed_checks)
        assert reason == (
            "step time 1.602 ms differs from its median of 6 earlier duel runs (1.007 ms) by a "
            "factor of 1.59; the limit is 1.5"
        )
    assert [each.counts for each in judge_campaign(engine, CAMPAIGN)] == [True]
    engine.dispose()


def test_a_row_of_another_night_than_its_campaign_is_marked_and_counts(state: State) -> None:
    """A rerun of the next day completes a night."""
    old, rerun, last = (make_document(duel_run=each * 16) for each in "def")
    engine = ingest(
        state, date_document(old, 2, 3), date_document(rerun, 3, 4), date_document(last, 3, 16)
    )
    report = check_campaign(engine, CAMPAIGN)
    assert report.success
    assert [
        (each.duel_run, each.expectation, each.severity, each.reason)
        for each in report.failed_checks
    ] == [
        (
            "d" * 16,
            "measured with its campaign",
            "warning",
            "it ended 37 h before the newest duel of its campaign, more than 36 h",
        )
    ]
    assert all(each.counts for each in judge_campaign(engine, CAMPAIGN))
    engine.dispose()


@pytest.mark.parametrize(("day", "marked"), [(8, False), (10, True)])
def test_passes_of_more_than_a_week_ago_are_marked(day: int, marked: bool, state: State) -> None:
    earlier = make_document(duel_run="e" * 16, campaign="earlier")
    now, at = date_document(make_document(), day, 3), "2026-03-02T03:00:00+00:00"
    now["duel"]["passes_of"] = {"duel_run": "e" * 16, "campaign": "earlier", "at": at}
    engine = ingest(state, date_document(earlier, 2, 3), now)
    report = check_campaign(engine, CAMPAIGN)
    assert report.success
    assert [(each.expectation, each.reason) for each in report.failed_checks] == (
        [
            (
                "passes of the last week",
                "its memory, profile and energy were measured 8.0 days before it, more than 7",
            )
        ]
        if marked
        else []
    )
    engine.dispose()


def test_a_noisy_past_marks_only_what_is_far_outside_of_its_noise(state: State) -> None:
    past = [make_night(1 + each, 1e6 * (1 + 0.1 * each)) for each in range(7)]
    engine = ingest(state, *past, make_night(9, 2.1e6))
    assert not check_campaign(engine, CAMPAIGN).failed_checks
    engine.dispose()


def test_an_infinite_difference_fails_its_check(state: State) -> None:
    engine = ingest(state, make_document())
    frames = read_frames(engine, CAMPAIGN)
    frames.equivalence.loc[0, "max_relative"] = float("inf")
    names = {each.expectation for each in run_checks(frames).failed_checks}
    assert names == {"finite difference", "within tolerance"}
    engine.dispose()


def test_a_pair_that_was_compared_in_fewer_quantities_than_another_is_not_proved(
    state: State,
) -> None:
    document = make_document((JAX, TORCH, OLD_JAX))
    names = ("torch-2.10", "jax-0.9")  # the other way round is the same pair
    document["equivalence"].append(make_evidence(*names, quantity="gradient"))
    report = check(state, document)
    assert {(each.contender, each.other) for each in report.failed_checks} == {
        ("jax-0.9", "jax-0.8"),
        ("torch-2.10", "jax-0.8"),
    }
    assert {each.expectation for each in report.failed_checks} == {"proof complete"}


def test_a_campaign_without_rows_is_not_a_success(state: State) -> None:
    report = check(state)
    assert (report.success, report.failed_checks, report.num_rows) == (False, (), 0)
    assert report.problems == (
        "nightly contenders: there are contenders: wanted at least 1 row, got 0",
    )


def test_only_suites_that_can_fail_are_run(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Great Expectations takes about as long for no rows as for many."""
    ran: list[str] = []

    def note(batch: Any, suite: Any, rows: Any) -> SuiteResult:
        ran.append(suite.name.removeprefix("nightly "))
        assert len(rows) or suite.name == "nightly contenders"
        return validate(batch, suite, rows)

    monkeypatch.setattr(suites, "validate", note)
    check(state)
    assert ran == ["contenders"], "whose number of rows is checked"
    ran.clear()
    assert check(state, make_document()).success
    assert {"contenders", "starts", "physics"} < set(ran) and "epochs" not in ran


def test_a_suite_is_given_the_columns_that_it_names(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Great Expectations copies a whole table for each expectation."""
    given: dict[str, set[str]] = {}
    run = validation.Checkpoint.run

    def note(self: Any, batch_parameters: dict[str, Any]) -> Any:
        given[self.name.removeprefix("nightly ")] = {*batch_parameters["dataframe"].columns}
        return run(self, batch_parameters=batch_parameters)

    monkeypatch.setattr(validation.Checkpoint, "run", note)
    assert check(state, make_document()).success
    assert given["physics"] == {"row", "limit_share"}
    assert given["profiles"] >= {"host_syncs", "framework", "use_case"}
    assert given["starts"] < {*start_rows(read_frames(open_database(state.database_url), CAMPAIGN))}


def test_a_check_that_cannot_run_is_not_a_success(state: State) -> None:
    engine = ingest(state, make_document())
    frames = read_frames(engine, CAMPAIGN)
    broken = frames.starts.drop(columns="compilations_in_blocks")
    with pytest.raises(CheckError, match="'compilations counted' could not be checked"):
        run_checks(suites.CheckFrames(**{**vars(frames), "starts": broken}))
    engine.dispose()


def test_a_contradictory_validation_result_is_not_a_success() -> None:
    result = SimpleNamespace(
        success=True,
        exception_info={"raised_exception": False},
        result={"unexpected_count": 1, "unexpected_index_list": []},
        expectation_config=SimpleNamespace(meta={"name": "finished", "reason": "r"}),
    )
    with pytest.raises(CheckError, match="reports 1 failed rows, success is True, and names 0"):
        validation._failed_rows(result, "a suite")  # type: ignore[arg-type]


def test_checks_are_silent_and_use_no_network(
    state: State, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("the network was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    document = make_document(agrees=False)
    assert not check(state, document).success
    assert capfd.readouterr() == ("", "")


def test_checking_a_campaign_stores_its_failed_checks(state: State) -> None:
    other = make_document(duel_run="f" * 16, campaign="other", agrees=False)
    engine = ingest(state, make_document(agrees=False), other)
    report = check_campaign(engine, CAMPAIGN)
    [record] = read_duels(engine, CAMPAIGN)
    assert (record.checked, record.failed_checks) == (True, report.failed_checks)
    assert {each.expectation for each in record.failed_checks} == {"agrees", "within tolerance"}
    [unchecked] = read_duels(engine, "other")
    assert (unchecked.checked, unchecked.failed_checks) == (False, ())
    engine.dispose()


def test_a_duel_ingested_while_frames_are_read_waits_for_the_next_check(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ingest(state, make_document())
    late = make_document(duel_run="f" * 16, agrees=False)

    def read_runs(*args: Any) -> Any:
        monkeypatch.undo()
        contenders = read_frames(engine, CAMPAIGN).contenders
        ingest(state, late).dispose()
        return contenders, run_frames(engine, CAMPAIGN)[1]

    monkeypatch.setattr("data_checks.check.run_frames", read_runs)
    frames = read_frames(engine, CAMPAIGN)
    assert set(frames.starts["duel_run"]) == set(frames.equivalence["duel_run"]) == {DUEL_RUN}
    engine.dispose()


def test_a_crash_of_a_third_contender_makes_no_new_pair(state: State) -> None:
    """Their duel had three contenders, so the two that finished have no ratio to check."""
    eager = replace(TORCH, name="torch-eager", arm="torch-eager")
    document = make_document((replace(JAX, status="crash"), TORCH, eager))
    manifest = document["contenders"][2]["effective"]["manifest"]
    manifest["threads"] = "64"
    report = check(state, document)
    assert not [each for each in report.failed_checks if each.contender and each.other]
    alone = make_document((TORCH, eager), duel_run="a" * 16)
    alone["contenders"][1]["effective"]["manifest"]["threads"] = "64"
    pairs = [each for each in check(state, alone).failed_checks if each.other]
    assert {each.duel_run for each in pairs} == {"a" * 16}

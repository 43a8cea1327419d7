"""Each check has rows that fail it and no other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from result_documents import CAMPAIGN, Racer, make_document, spool_document

from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.incoming.ingest import ingest_spool
from data_checks.check import read_frames
from data_checks.rows import CheckFrames
from data_checks.suites import CheckReport, list_suites, run_checks

Document = dict[str, Any]
_Spoil = Callable[[Document], object]
_SpoilFrames = Callable[[CheckFrames, str], CheckFrames]
NOOP = Racer(name="noop", framework="stdlib", version="3.11", arm="noop")


def start(document: Document, contender: int = 0, index: int = 1) -> Document:
    return document["contenders"][contender]["starts"][index]


def lengthen_blocks(document: Document) -> None:
    for contender in document["contenders"]:
        for each in contender["starts"]:
            for block in each["blocks"]:
                block.update(elapsed_ns=50_000_000_000, steps=50_000)


def fail(document: Document, status: str) -> None:
    document["contenders"][0].update(
        status=status,
        failure={"stage": "build", "start": 0, "reason": "no {room}", "traceback": None},
        starts=[],
    )
    document["equivalence"] = []


WRONG: dict[str, tuple[Callable[[Document], object], set[tuple[str | None, str | None, str, str]]]]
WRONG = {
    "a contender that ran out of memory": (
        lambda d: fail(d, "oom"),
        {
            ("jax-0.9", None, "finished", "it ran out of memory in stage build: no {room}"),
            (
                "jax-0.9",
                "torch-2.10",
                "proof complete",
                "0 of 1 quantities compared between 'jax-0.9' and 'torch-2.10'",
            ),
        },
    ),
    "a contender that is slowed down, in no trial": (
        lambda d: d["contenders"][0]["settings"].update(injected_slowdown="5"),
        {
            (
                "jax-0.9",
                None,
                "not wrong on purpose",
                "jax-0.9 is wrong on purpose: slowed down by 5 %",
            )
        },
    ),
    "blocks that take longer than the duel": (
        lambda d: lengthen_blocks(d),
        {
            (
                None,
                None,
                "blocks fit into the duel",
                "its blocks take 1200.0 s or more, and the whole duel 600.2 s",
            )
        },
    ),
    "a start after the end of the duel": (
        lambda d: start(d).update(started_at="2026-01-02T04:04:05.250+00:00"),
        {
            (
                None,
                None,
                "starts within the duel",
                "a start began 3000.0 s before the duel or after it",
            )
        },
    ),
    "a counter that a process does not have, as 0": (
        lambda d: start(d)["memory"].update(process_peak_bytes=0),
        {
            (
                "jax-0.9",
                None,
                "process_peak_bytes above zero",
                "start 1 reports 0.0 bytes; a missing counter must be null",
            )
        },
    ),
    "an allocator's counter of 0": (
        lambda d: start(d)["memory"].update(allocator_peak_bytes=0),
        {
            (
                "jax-0.9",
                None,
                "allocator_peak_bytes above zero",
                "start 1 reports 0.0 bytes; a missing counter must be null",
            )
        },
    ),
    "a start too few": (
        lambda d: d["contenders"][1]["starts"].pop(),
        {("torch-2.10", None, "all starts", "2 of at least 3 planned starts")},
    ),
    "no start at all": (
        lambda d: d["contenders"][1]["starts"].clear(),
        {("torch-2.10", None, "all starts", "0 of at least 3 planned starts")},
    ),
    "a start that failed and was forgotten": (
        lambda d: start(d).update(status="timeout"),
        {("jax-0.9", None, "start finished", "start 1 timed out")},
    ),
    "a block too few": (
        lambda d: start(d)["blocks"].pop(),
        {("jax-0.9", None, "all rounds", "start 1 has 3 blocks of at least 4 planned rounds")},
    ),
    "a start without blocks": (
        lambda d: start(d)["blocks"].clear(),
        {
            ("jax-0.9", None, "all rounds", "start 1 has 0 blocks of at least 4 planned rounds"),
            ("jax-0.9", None, "timed", "start 1 has no time of a step"),
        },
    ),
    "a compilation in the timed blocks": (
        lambda d: start(d, 1, 2).update(compilations_in_blocks=2),
        {
            (
                "torch-2.10",
                None,
                "nothing compiled while the clock ran",
                "start 2 compiled 2 times in timed blocks",
            )
        },
    ),
    "compilations that nobody counted": (
        lambda d: start(d).update(compilations_in_blocks=None),
        {("jax-0.9", None, "compilations counted", "start 1 did not count compilations")},
    ),
    "other inputs": (
        lambda d: start(d).update(inputs_sha256="d" * 64),
        {(None, None, "same inputs", "contenders worked on 2 different inputs, not 1")},
    ),
    "inputs that do not follow their seeds": (
        lambda d: [
            each.update(seed=each["index"]) for side in d["contenders"] for each in side["starts"]
        ],
        {(None, None, "inputs of each seed", "3 seeds gave 1 different inputs")},
    ),
    "inputs that nobody knows": (
        lambda d: start(d).update(inputs_sha256=None),
        {("jax-0.9", None, "inputs known", "start 1 did not report its inputs")},
    ),
    "a pair that does not agree": (
        lambda d: d["equivalence"][0].update(agrees=False, max_relative=1.23456e-7),
        {("jax-0.9", "torch-2.10", "agrees", "'loss' differs by 1.235e-07 (tolerance 1e-05)")},
    ),
    "a pair that only says that it agrees": (
        lambda d: d["equivalence"][0].update(max_relative=0.5),
        {
            (
                "jax-0.9",
                "torch-2.10",
                "within tolerance",
                "'loss' differs by 0.5, above its tolerance 1e-05",
            )
        },
    ),
    "a pair that could not be compared": (
        lambda d: d["equivalence"][0].update(max_relative=None),
        {("jax-0.9", "torch-2.10", "compared", "'loss' could not be compared")},
    ),
    "a difference below zero": (
        lambda d: d["equivalence"][0].update(max_relative=-1.0),
        {("jax-0.9", "torch-2.10", "finite difference", "'loss' differs by -1.0")},
    ),
    "one thread on one side": (
        lambda d: d["contenders"][1]["effective"]["manifest"].update(threads="1"),
        {
            (
                "jax-0.9",
                "torch-2.10",
                "same settings",
                "the two sides had different settings: threads '2' on jax-0.9, '1' on torch-2.10",
            )
        },
    ),
    "no manifest": (
        lambda d: d["contenders"][1]["effective"].pop("manifest"),
        {
            (
                "jax-0.9",
                "torch-2.10",
                "same settings",
                "the two sides had different settings: torch-2.10 has no manifest",
            )
        },
    ),
    "no evidence": (
        lambda d: d["equivalence"].clear(),
        {
            (
                "jax-0.9",
                "torch-2.10",
                "proof complete",
                "0 of 1 quantities compared between 'jax-0.9' and 'torch-2.10'",
            )
        },
    ),
}


def profile(document: Document, contender: int = 0) -> Document:
    return start(document, contender, 0)["profile"]


ALONE: dict[str, _Spoil] = {
    "finished": lambda d: (
        d.update(make_document((NOOP,), duel_run=d["duel_run"])),
        fail(d, "oom"),
    ),
    "measured with its campaign": lambda d: d["allocation"].update(
        started_at="2025-12-31T03:04:05+00:00", ended_at="2025-12-31T03:14:05+00:00"
    ),
    "blocks long enough for the clock": lambda d: start(d).update(clock_resolution_ns=11_000),
    "no wait within a step": lambda d: profile(d).update(host_syncs=20),
    "inputs on the device": lambda d: profile(d).update(host_copies=10, copied_bytes=40_000),
    "graphs as reported": lambda d: profile(d).update(graph_launches=10),
    "no module in a compiled step": lambda d: profile(d).update(module_calls=31),
    "inference keeps no graph": lambda d: (
        d["duel"].update(use_case="infer"),
        profile(d, 1).update(grad_mode="no_grad"),
    ),
}
"""By the name of the check: what a document says that fails it."""


def put(table: str, **values: object) -> _SpoilFrames:
    """The duel's rows have these values."""

    def spoil(frames: CheckFrames, duel_run: str) -> CheckFrames:
        rows = getattr(frames, table).copy()
        for column, value in values.items():
            rows.loc[rows["duel_run"] == duel_run, column] = value
        return replace(frames, **{table: rows})

    return spoil


def add(table: str, *added: Document) -> _SpoilFrames:
    """The duel has these rows, too."""

    def spoil(frames: CheckFrames, duel_run: str) -> CheckFrames:
        before = getattr(frames, table)
        rows = [{"duel_run": duel_run, **each} for each in added]
        more = pd.DataFrame(rows, columns=before.columns, dtype=object)
        return replace(frames, **{table: pd.concat([before.astype(object), more])})

    return spoil


def count(kind: str = "cpu", **changes: object) -> _SpoilFrames:
    """The step of JAX's side, on a device of this `kind`, does other work than torch's, which does
    that of its case."""
    right: Document = {
        "flops": {"float32": 1000},
        "compiled_dtypes": ["float32"],
        "compiled_share": 1.0,
        "missing": {},
    }

    def spoil(frames: CheckFrames, duel_run: str) -> CheckFrames:
        rows = frames.products.astype(object)
        jax, torch = rows.index[rows["duel_run"] == duel_run]
        for index, products in ((jax, {**right, **changes}), (torch, right)):
            rows.at[index, "products"] = products
            rows.at[index, "method"], rows.at[index, "precision"] = 2, "fp32_ieee"
            rows.at[index, "device"] = {**rows.at[index, "device"], "kind": kind}
        return replace(frames, products=rows)

    return spoil


def prove(**changes: object) -> _SpoilFrames:
    """The pair has a proof with these wrong values."""
    sides = {"a": "jax-0.9", "b": "torch-2.10", "quantity": "logits"}
    errors = {f"{of}_error": 1e-7 for of in ("reference", "a", "b")}
    bounds = {f"{of}_bound": 1e-6 for of in ("reference", "a", "b")}
    return add("proofs", {**sides, "passed": True, "reason": "", **errors, **bounds, **changes})


_NEEDED: Document = {"elements": 0.0, "operations": 0.0, "names": [], "unusual": []}
_LONG_AGO = pd.Timestamp("2025-12-01", tz="UTC")
ALONE_IN_ROWS: dict[str, _SpoilFrames] = {
    "not from the future": put("contenders", ingested_at=_LONG_AGO),
    "passes of the last week": put("contenders", passes_at=_LONG_AGO.tz_localize(None)),
    "invalid_physics": put("contenders", limit_share=9.0),
    "physics judged": put("contenders", method=2, unjudged="no ceiling measured"),
    "near its own past": add("past", *[{"name": "jax-0.9", "median_step_ns": 1e7}] * 6),
    "timed": put("starts", median_step_ns=float("nan")),
    "positive finite time": put("starts", median_step_ns=-1.0),
    "disturbances counted": put("starts", unwatched="foreign_cpu_share: not counted"),
    "work of the case": count(flops={"float32": 500}),
    "products in the case's precision": count(flops={"bfloat16": 1000}),
    "compiled in the case's precision": count(compiled_dtypes=["bfloat16"]),
    "compiled without leaving work out": count(compiled_share=0.5),
    "products counted": count(flops=None, missing={"flops": "E: no"}),
    "compiled work counted": count("gpu", compiled_share=None),
    "no needless work": count(needless={**_NEEDED, "elements": 0.5, "names": ["tanh"]}),
    "no operation that its step does not need": count(needless={**_NEEDED, "unusual": ["sort"]}),
    "proven equal": prove(passed=False, reason="not the same function"),
    "reference within bound": prove(reference_error=1e-3),
    "a within bound": prove(a_error=1e-3),
    "b within bound": prove(b_error=1e-3),
    "same accuracy": add(
        "epochs",
        {"name": "jax-0.9", "epoch": 1, "correct": 400, "num_val": 1000},
        {"name": "torch-2.10", "epoch": 1, "correct": 500, "num_val": 1000},
    ),
}
"""What no document can say, or only with others: physics needs sentinels, and the past nights."""
RUNS = {name: f"{number:016x}" for number, name in enumerate([*WRONG, *ALONE, *ALONE_IN_ROWS])}


@pytest.fixture(scope="module")
def wrong_night(tmp_path_factory: pytest.TempPathFactory) -> CheckReport:
    """One duel for each wrong value, a right one, and a planned one that is lost."""
    state = open_state(tmp_path_factory.mktemp("wrong"))
    spoils = {name: spoil for name, (spoil, _) in WRONG.items()} | ALONE
    for name, duel_run in RUNS.items():
        document = make_document(duel_run=duel_run)
        if name in spoils:
            spoils[name](document)
        spool_document(state.spool, document)
    spool_document(state.spool, make_document(duel_run="f" * 16))
    engine = open_database(state.database_url)
    assert ingest_spool(engine, state).rejected == ()
    lost: Any = SimpleNamespace(duel_run="e" * 16, title="a lost duel")
    frames = read_frames(engine, CAMPAIGN, [lost])
    engine.dispose()
    for name, spoil_frames in ALONE_IN_ROWS.items():
        frames = spoil_frames(frames, RUNS[name])
    return run_checks(frames)


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_value_fails_exactly_its_check(wrong_night: CheckReport, name: str) -> None:
    of_duel = [each for each in wrong_night.failed_checks if each.duel_run == RUNS[name]]
    marks = {(each.contender, each.other, each.expectation, each.reason) for each in of_duel}
    assert marks == WRONG[name][1]
    assert "critical" in {each.severity for each in of_duel}


def test_a_right_duel_beside_wrong_ones_fails_no_check(wrong_night: CheckReport) -> None:
    assert {each.duel_run for each in wrong_night.failed_checks} == {*RUNS.values()}
    assert not wrong_night.success


@pytest.mark.parametrize("check", [*ALONE, *ALONE_IN_ROWS])
def test_its_own_rows_fail_a_check_and_no_other(wrong_night: CheckReport, check: str) -> None:
    failed = [each for each in wrong_night.failed_checks if each.duel_run == RUNS[check]]
    assert {each.expectation for each in failed} == {check}


def test_each_check_has_rows_that_fail_it_alone(wrong_night: CheckReport, state: State) -> None:
    """As seen, not as listed here; two checks are of no row that is there."""
    names = [each.meta["name"] for *_, expectations in list_suites() for each in expectations]
    of_duel = defaultdict[str, set[str]](set)
    for each in wrong_night.failed_checks:
        of_duel[each.duel_run].add(each.expectation)
    alone = {check for checks in of_duel.values() if len(checks) == 1 for check in checks}
    (lost,) = wrong_night.problems
    assert lost == "planned duels received: a lost duel was planned, but has no result"
    engine = open_database(state.database_url)
    (nothing,) = run_checks(read_frames(engine, "no night")).problems
    engine.dispose()
    assert nothing == "nightly contenders: there are contenders: wanted at least 1 row, got 0"
    assert alone == {*names} - {"planned duels received", "there are contenders"}
    assert len({*names}) == len(names)

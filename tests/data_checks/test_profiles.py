"""Steps that wait or copy, and blocks too short for the clock, are void."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from result_documents import CAMPAIGN, make_document, make_profile, spool_document

from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.verdict.duel.step_profile import judge_graphs
from data_checks.check import read_frames
from data_checks.suites import run_checks

SUITES = {"times", "starts", "profiles"}


def _check(
    tmp_path: Path, *, contender: int = 0, use_case: str = "train", **changes: Any
) -> set[tuple[str | None, str, str]]:
    """What is marked where the first start of a contender, JAX's, has these keys."""
    state = open_state(tmp_path / "state")
    document = make_document()
    document["duel"]["use_case"] = use_case
    document["contenders"][contender]["starts"][0].update(changes)
    spool_document(state.spool, document)
    engine = open_database(state.database_url)
    assert ingest_spool(engine, state).rejected == ()
    report = run_checks(read_frames(engine, CAMPAIGN))
    engine.dispose()
    return {(mark.contender, mark.expectation, mark.reason) for mark in report.failed_checks}


@pytest.mark.parametrize(
    ("changes", "expectation", "reason"),
    [
        ({"host_syncs": 20}, "no wait within a step", "each step waits for 2 values"),
        ({"host_copies": 10, "copied_bytes": 40_000}, "inputs on the device", "takes 1 arrays"),
        ({"host_copies": 10, "copied_bytes": None}, "inputs on the device", "takes 1 arrays"),
        ({"module_calls": 31}, "no module in a compiled step", "calls 31 functions of Flax"),
    ],
)
def test_a_step_that_synchronises_or_copies_is_void(
    tmp_path: Path, changes: dict[str, Any], expectation: str, reason: str
) -> None:
    (mark,) = _check(tmp_path, profile=make_profile(**changes)) or [("nobody", "", "")]
    assert mark[:2] == ("jax-0.9", expectation)
    assert reason in mark[2]


@pytest.mark.parametrize(
    "profile",
    [
        make_profile(host_copies=10, copied_bytes=40),
        make_profile(host_syncs=None, host_copies=None, copied_bytes=None),
        None,
    ],
    ids=["only numbers", "unknown", "no profile"],
)
def test_profiled_and_unprofiled_contenders_pass(
    tmp_path: Path, profile: dict[str, Any] | None
) -> None:
    assert _check(tmp_path, profile=profile) == set()


@pytest.mark.parametrize("mode", ["no_grad", "tracked"])
def test_inference_that_keeps_a_graph_is_void(tmp_path: Path, mode: str) -> None:
    """Row 43: training keeps a graph, so it is not checked."""
    kept = make_profile(grad_mode=mode)
    found = _check(tmp_path / "infer", contender=1, use_case="infer", profile=kept)
    (mark,) = found or [("nobody", "", "")]
    assert mark == (
        "torch-2.10",
        "inference keeps no graph",
        f"inference ran in torch's {mode}, not in inference_mode",
    )
    good = make_profile(grad_mode="inference_mode")
    assert _check(tmp_path / "good", contender=1, use_case="infer", profile=good) == set()
    assert _check(tmp_path / "train", contender=1, profile=kept) == set()


@pytest.mark.parametrize(
    ("framework", "claimed", "launches", "reason"),
    [
        ("torch", "on", 20, ""),
        ("torch", "on", 0, "its steps launched no CUDA graph, and it reports that they do"),
        ("torch", "off", 0, ""),
        ("torch", "off", 3, "its steps launched 3 CUDA graphs, and it reports none"),
        ("jax", "on", 0, ""),  # a program too short for one
        ("jax", "off", 3, "its steps launched 3 CUDA graphs, and it reports none"),
        ("torch", "on", None, ""),
        ("torch", None, 3, ""),
    ],
)
def test_graphs_that_a_side_launches_are_those_it_reports(
    framework: str, claimed: str | None, launches: int | None, reason: str
) -> None:
    profile = make_profile(graph_launches=launches)
    assert judge_graphs(profile, framework, claimed) == reason
    del profile["graph_launches"]  # of an older harness
    assert judge_graphs(profile, framework, claimed) == ""


def test_a_side_with_other_graphs_than_it_reports_is_void(tmp_path: Path) -> None:
    (mark,) = _check(tmp_path, profile=make_profile(graph_launches=10)) or [("nobody", "", "")]
    assert mark[:2] == ("jax-0.9", "graphs as reported")


def test_an_eager_module_may_run_its_python_code(tmp_path: Path) -> None:
    assert _check(tmp_path, contender=1, profile=make_profile(module_calls=161)) == set()


def test_a_block_too_short_for_the_clock_is_void(tmp_path: Path) -> None:
    """Row 15: 10 ms are 1000 steps of 10 us, and no more than that of 11 us."""
    assert _check(tmp_path / "fine", clock_resolution_ns=9_000) == set()
    coarse = _check(tmp_path / "coarse", clock_resolution_ns=11_000)
    (mark,) = coarse or [("nobody", "", "")]
    assert mark[:2] == ("jax-0.9", "blocks long enough for the clock")
    assert "less than 1000 ticks of its clock (11000 ns)" in mark[2]

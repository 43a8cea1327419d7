from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import pandas as pd
import pytest
from result_documents import CAMPAIGN, JAX, OLD_JAX, TORCH, make_document, spool_document
from sent_statements import record_statements

from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.duels import judge_campaign, replace_failed_checks
from benchcore.store.frames.contenders import amount_frame, contender_frame, run_frames
from benchcore.store.frames.duels import equivalence_frame, failed_check_frame
from benchcore.store.frames.profiles import profile_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.frames.reading import Runs
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.metrics import METRICS
from benchcore.store.records import FailedCheck
from benchcore.store.reports.campaign import list_contenders, list_profiles

CASE = [
    "campaign",
    "duel_run",
    "started_at",
    "workload",
    "case_name",
    "use_case",
    "batch",
    "precision",
]


def read_starts(engine: Engine, campaign: str | None = None) -> pd.DataFrame:
    return run_frames(engine, campaign)[1]


WANTED = {
    contender_frame: [
        *CASE,
        *[
            "name",
            "arm",
            "role",
            "framework",
            "version",
            "environment_key",
            "python_version",
            "build",
            "status",
            "stage",
        ],
        *[
            "reason",
            "num_starts",
            "num_blocks",
            "median_step_ns",
            "import_s",
            "compile_s",
            "first_run_s",
        ],
        *["warm_up_s", "process_peak_bytes", "planned_starts", "planned_rounds"],
        "stopped_by",
    ],
    read_starts: [
        *CASE,
        *["name", "framework", "start_index", "status", "contender_status", "caches", "num_blocks"],
        *[
            "compilations_in_blocks",
            "median_step_ns",
            "inputs_sha256",
            "planned_rounds",
            "compile_s",
        ],
    ],
    equivalence_frame: [
        *CASE,
        *["a", "b", "quantity", "max_relative", "l2_relative", "tolerance", "agrees"],
    ],
    failed_check_frame: [
        *CASE,
        *["contender", "other", "suite", "expectation", "reason", "checked_at"],
    ],
    ratio_frame: [
        *CASE,
        *[
            "track",
            "device_model",
            "device_fingerprint",
            "kind",
            "a",
            "b",
            "a_arm",
            "b_arm",
            "a_framework",
        ],
        *[
            "b_framework",
            "a_version",
            "b_version",
            "a_role",
            "b_role",
            "log_ratio",
            "low",
            "high",
            "num_starts",
        ],
        *[
            "start_log_ratios",
            "start_compilations",
            "verdict",
            "reason",
            "scope",
            "counts",
            "method",
        ],
    ],
}
Reader = Callable[[Engine, str | None], pd.DataFrame]


@pytest.fixture
def filled(engine: Engine, state: State) -> Engine:
    spool_document(state.spool, make_document((JAX, TORCH, OLD_JAX)))
    crashed = dataclasses.replace(TORCH, status="crash")
    document = make_document((JAX, crashed), duel_run="f" * 16, campaign="other")
    document["contenders"][1]["starts"] = []
    spool_document(state.spool, document)
    ingest_spool(engine, state)
    mark = FailedCheck(
        duel_run="f" * 16,
        contender="torch-2.10",
        other=None,
        suite="s",
        expectation="e",
        reason="r",
    )
    replace_failed_checks(engine, "other", [mark])
    for campaign in (CAMPAIGN, "other"):
        judge_campaign(engine, campaign)
    return engine


@pytest.mark.parametrize("read", WANTED, ids=lambda read: read.__name__)
def test_a_frame_has_the_columns_that_others_rely_on(read: Reader, filled: Engine) -> None:
    assert set(WANTED[read]) <= set(read(filled, None).columns)


@pytest.mark.parametrize("read", WANTED, ids=lambda read: read.__name__)
def test_an_empty_frame_has_the_types_of_a_full_one(read: Reader, filled: Engine) -> None:
    full, empty = read(filled, None), read(filled, "nothing")
    assert (len(empty), len(full) > 0) == (0, True)
    assert dict(empty.dtypes) == dict(full.dtypes)


@pytest.mark.parametrize("read", WANTED, ids=lambda read: read.__name__)
def test_the_frame_of_a_campaign_is_a_part_of_the_whole(read: Reader, filled: Engine) -> None:
    parts = [read(filled, campaign) for campaign in (CAMPAIGN, "other")]
    assert sum(len(part) for part in parts) == len(read(filled, None))
    assert set(parts[1]["campaign"]) == {"other"}


def test_a_contender_row_summarises_its_starts(filled: Engine) -> None:
    frame = contender_frame(filled, CAMPAIGN)
    assert list(frame["name"]) == ["jax-0.9", "torch-2.10", "jax-0.8"]
    row = frame.iloc[0]
    assert (row["num_starts"], row["num_blocks"]) == (3, 12)
    assert (row["planned_starts"], row["planned_rounds"]) == (3, 4)
    assert row["median_step_ns"] == pytest.approx(1_001_500)
    assert row["compile_s"] == pytest.approx(1.5)
    assert row["items_per_s"] == pytest.approx(row["batch"] * 1e9 / 1_001_500)
    assert row["process_peak_bytes"] == 1_000_002
    assert pd.isna(row["planned_bytes"])
    assert pd.isna(row["reason"])
    assert row["started_at"] == pd.Timestamp("2026-01-02T03:04:05Z")


def test_latency_pools_all_starts_and_energy_comes_from_the_start_that_has_it(
    engine: Engine, state: State
) -> None:
    document = make_document((JAX, TORCH))
    starts = document["contenders"][0]["starts"]
    for start in starts:
        start["latency_ns"] = [2_000_000] * 70
    starts[-1]["energy"] = {"gross_mj": 8.0, "idle_mw": 2e3, "window_ns": 10**6, "steps": 2}
    starts[-1]["memory"]["process_baseline_bytes"] = 500_000
    starts[1]["cache_hits"] = 3
    spool_document(state.spool, document)
    ingest_spool(engine, state)
    row, other = contender_frame(engine).iloc[0], contender_frame(engine).iloc[1]
    assert row["latency_samples"] == 210
    assert row["latency_p95_ns"] == 2_000_000
    assert pd.isna(row["latency_p99_ns"])
    assert row["host_boundness"] == pytest.approx(2e6 / row["median_step_ns"])
    assert (row["gross_mj"], row["net_mj"]) == (4.0, 3.0)
    assert row["process_baseline_bytes"] == 500_000
    assert list(read_starts(engine)["cache_hits"].iloc[:3].fillna(-1)) == [-1, 3, -1]
    for missing in ("latency_p50_ns", "host_boundness", "gross_mj"):
        assert pd.isna(other[missing])


@pytest.mark.parametrize(
    ("caches", "cold_s", "warm_s"),
    [
        (("cold", "cold", "warm"), 5.0, 2.0),
        (("cold", "cold", "cold"), 4.0, 0.75),
        (("warm", "warm", "warm"), 9.5, 4.0),
    ],
)
def test_compilation_with_empty_and_with_filled_caches_is_distinguished(
    engine: Engine, state: State, caches: tuple[str, ...], cold_s: float, warm_s: float
) -> None:
    """That of the starts; an untimed process's counts only where no start is of its kind."""
    document = make_document((JAX, TORCH))
    jax, torch = document["contenders"]
    jax["cold"]["stages"] |= {"trace": 0.5, "lower": None, "compile": 9.0}
    jax["warm"] = copy.deepcopy(jax["cold"])
    jax["warm"]["stages"]["compile"] = 0.25
    for start, each, seconds in zip(jax["starts"], caches, (8.0, 1.0, 1.5), strict=True):
        start["caches"] = each
        start["stages"] |= {"trace": 0.5, "lower": None, "compile": seconds}
    torch["cold"] = None
    for start in torch["starts"]:
        start["stages"] |= {"trace": None, "lower": None, "compile": None}
    spool_document(state.spool, document)
    ingest_spool(engine, state)
    jax, torch = contender_frame(engine).to_dict("records")
    assert (jax["cold_compile_s"], jax["warm_compile_s"]) == (cold_s, warm_s)
    assert pd.isna(torch["cold_compile_s"]) and pd.isna(torch["warm_compile_s"])


def test_a_stage_that_no_start_reached_is_missing(engine: Engine, state: State) -> None:
    document = make_document((JAX,))
    for start in document["contenders"][0]["starts"]:
        start["stages"]["compile"] = None
    document["contenders"][0]["starts"][0]["stages"]["import"] = None
    spool_document(state.spool, document)
    ingest_spool(engine, state)
    row = contender_frame(engine).iloc[0]
    assert pd.isna(row["compile_s"])
    assert row["import_s"] == pytest.approx(2.0)


def test_a_contender_that_never_started_is_a_row(filled: Engine) -> None:
    frame = contender_frame(filled, "other").set_index("name")
    crashed = frame.loc["torch-2.10"]
    assert (crashed["status"], crashed["stage"], crashed["reason"]) == (
        "crash",
        "build",
        "it broke",
    )
    assert (crashed["num_starts"], crashed["num_blocks"]) == (0, 0)
    assert pd.isna(crashed["median_step_ns"])
    assert frame["num_starts"].dtype == "int64"


def test_a_pair_without_numbers_is_a_row_of_ratios(filled: Engine) -> None:
    [row] = ratio_frame(filled, "other").to_dict("records")
    assert (row["counts"], row["verdict"], row["num_starts"]) == (False, "unknown", 0)
    assert row["start_log_ratios"] == []
    assert pd.isna(row["log_ratio"]) and pd.isna(row["low"]) and pd.isna(row["high"])


def test_profiles_have_one_row_per_contender(filled: Engine) -> None:
    frame = profile_frame(filled, CAMPAIGN)
    assert list(frame["name"]) == ["jax-0.9", "torch-2.10", "jax-0.8"]
    first = frame.iloc[0]
    assert first["kernel_ns"] + first["dispatch_ns"] == 50_000
    assert (first["num_kernels"], first["host_syncs"], first["copied_bytes"]) == (2, 0, 0)
    assert first["longest"] == "dot.1 75 %; fusion.2 25 %"
    assert list(frame.dtypes) == list(profile_frame(filled, "no such campaign").dtypes)
    rows = list_profiles(filled, CAMPAIGN)
    assert [row["dispatch_ns"] for row in rows] == [25_000] * 3


def test_starts_that_were_not_steady_when_their_clock_began_are_counted(
    engine: Engine, state: State
) -> None:
    document = make_document([JAX, OLD_JAX, TORCH])
    jax, old, torch = document["contenders"]
    jax["starts"][1]["warm_up"]["steady"] = False
    for start in torch["starts"]:
        start["warm_up"] = None  # it never came so far
    spool_document(state.spool, document)
    ingest_spool(engine, state)
    found = contender_frame(engine).set_index("name")["num_unsteady"]
    assert (found[jax["name"]], found[old["name"]]) == (1, 0)
    assert pd.isna(found[torch["name"]])
    listed = {row["name"]: row["num_unsteady"] for row in list_contenders(engine, CAMPAIGN)}
    assert listed == {jax["name"]: 1, old["name"]: 0, torch["name"]: None}


def test_some_amounts_of_some_duel_runs_are_those_of_the_frame(
    engine: Engine, state: State
) -> None:
    first = make_document((JAX, TORCH))
    for start in first["contenders"][0]["starts"]:
        start["latency_ns"] = [2_000_000] * 70
        start["energy"] = {"gross_mj": 8.0, "idle_mw": 2e3, "window_ns": 10**6, "steps": 2}
    later = make_document((JAX, TORCH), duel_run="e" * 16)
    later["campaign"] = "later"
    at = first["allocation"]["started_at"]
    earlier = {"duel_run": first["duel_run"], "campaign": first["campaign"], "at": at}
    later["duel"]["passes_of"] = earlier
    for document in (first, later, make_document((JAX, TORCH), duel_run="f" * 16)):
        spool_document(state.spool, document)
    assert not ingest_spool(engine, state).rejected
    every = contender_frame(engine)
    metrics = [each.key for each in METRICS if each.key not in _OF_OTHER_COLUMNS]
    wanted = every.loc[every["campaign"] == "later", ["duel_run", "name", *metrics]]
    runs = Runs(["e" * 16])
    found = amount_frame(engine, runs, metrics)[list(wanted)]
    pd.testing.assert_frame_equal(found, wanted.reset_index(drop=True))
    assert found["median_step_ns"].notna().all() and found["gross_mj"].notna().any()
    sent = record_statements(engine, lambda: amount_frame(engine, runs, metrics))
    assert not [each for each, _ in sent if "profile" in each or "environment_key" in each]
    of_profile = ["host_dispatch_ns", "program_ops", "median_step_ns"]
    wanted = every.loc[every["campaign"] == "later", ["duel_run", "name", *of_profile]]
    found = amount_frame(engine, runs, of_profile)[list(wanted)]
    pd.testing.assert_frame_equal(found, wanted.reset_index(drop=True))
    assert found[of_profile].notna().all(axis=None)


_OF_OTHER_COLUMNS = ("host_boundness", "program_ops", "host_dispatch_ns")

"""Every tracked metric has its own series, scale and suspicions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from result_documents import JAX, OLD_JAX, TORCH, make_history, plant_amounts
from sent_statements import record_statements
from sqlalchemy import select
from sqlalchemy.orm import Session
from stored_histories import store_history

from benchcore.errors import UserError
from benchcore.planning.catalog import list_proven, list_workloads, proof_use_cases
from benchcore.state import State
from benchcore.store.database import Engine, begin_writing
from benchcore.store.duels import list_campaigns, list_newest_campaigns
from benchcore.store.history import conditions
from benchcore.store.history.series import list_cases, read_series
from benchcore.store.history.suspicions import list_suspicions, read_suspicion, refresh_suspicions
from benchcore.store.metric_values import fill_amounts
from benchcore.store.metrics import ERRORS, METRICS, TRACKED, find_tracked
from benchcore.store.models import ContenderRun, DuelRun, Proof
from benchcore.store.reports.certificates import list_certificates
from benchcore.store.reports.guide import list_answers
from benchcore.verdict.history.thresholds import HISTORY_DAYS

NUM = 30
RNG = np.random.default_rng(7)
QUIET = RNG.normal(0.0, 0.004, NUM)
STEPS = 0.2 + RNG.normal(0.0, 0.004, NUM)
AFTER = np.arange(NUM) >= 18


def _suspect(
    engine: Engine, state: State, metric: str, amounts: np.ndarray, side: int = 0
) -> list[dict[str, Any]]:
    documents = make_history(STEPS)
    plant_amounts(documents, 1 - side, metric, [float(np.median(amounts[:5]))] * NUM)
    plant_amounts(documents, side, metric, list(amounts))
    store_history(engine, state, documents)
    refresh_suspicions(engine)
    return list_suspicions(engine)


@pytest.mark.parametrize(
    ("metric", "amounts", "ratio"),
    [
        ("cold_compile_s", 2.0 * np.exp(QUIET + math.log(1.4) * AFTER), 1 / 1.4),
        ("allocator_peak_bytes", 5e8 * (1 + 0.1 * AFTER), 1 / 1.1),
        ("process_peak_bytes", 9e8 * np.exp(QUIET / 4 + math.log(1.2) * AFTER), 1 / 1.2),
        ("latency_p95_ns", 3e6 * np.exp(QUIET + math.log(1.3) * AFTER), 1 / 1.3),
        ("program_ops", 400 + 1.0 * AFTER, 400 / 401),
        ("planned_bytes", 5e8 * (1 + 0.1 * AFTER), 1 / 1.1),
        ("host_dispatch_ns", 3e5 * np.exp(QUIET + math.log(2.0) * AFTER), 1 / 2),
        ("trace_s", 0.02 * np.exp(QUIET + math.log(1.5) * AFTER), 1 / 1.5),
        ("lower_s", 0.02 * np.exp(QUIET + math.log(1.5) * AFTER), 1 / 1.5),
    ],
)
def test_a_shift_of_one_metric_is_one_suspicion_of_that_metric(
    state: State, engine: Engine, metric: str, amounts: np.ndarray, ratio: float
) -> None:
    [found] = _suspect(engine, state, metric, amounts)
    assert (found["metric"], found["state"], found["trigger"]) == (metric, "open", "shift")
    assert found["series"] == f"mlp tiny: jax-jit against torch-compile, {metric}"
    assert found["ratio"] == pytest.approx(ratio, rel=0.01)
    assert found["since_run"] == f"{18:016x}"


@pytest.mark.parametrize(
    ("metric", "amounts"),
    [
        ("cold_compile_s", 2.0 * np.exp(QUIET / 8 + math.log(1.03) * AFTER)),
        ("allocator_peak_bytes", 5e8 * (1 + 0.004 * AFTER)),
        ("process_peak_bytes", 9e8 * (1 + 0.01 * AFTER)),
        ("planned_bytes", 5e8 * (1 + 0.004 * AFTER)),
        ("host_dispatch_ns", 3e5 * np.exp(QUIET + math.log(1.1) * AFTER)),
    ],
)
def test_a_shift_below_what_matters_for_its_metric_is_no_suspicion(
    state: State, engine: Engine, metric: str, amounts: np.ndarray
) -> None:
    assert _suspect(engine, state, metric, amounts) == []


def test_a_step_time_shift_of_that_size_is_a_suspicion_of_step_time_alone(
    state: State, engine: Engine
) -> None:
    store_history(engine, state, make_history(STEPS + math.log(1.03) * AFTER))
    refresh_suspicions(engine)
    assert [each["metric"] for each in list_suspicions(engine)] == ["median_step_ns"]


def test_a_framework_has_a_series_against_its_previous_version(
    state: State, engine: Engine
) -> None:
    newest = replace(JAX, name="jax-0.9.1", version="0.9.1")
    documents = make_history(
        QUIET + math.log(1.1) * AFTER, [JAX, OLD_JAX], later=[newest, OLD_JAX], since=18
    )
    store_history(engine, state, documents)
    [series] = read_series(engine)
    assert (series.key.control, series.key.a_arm, series.key.b_arm) == (
        "previous",
        "jax-jit",
        "jax-jit",
    )
    refresh_suspicions(engine)
    [found] = list_suspicions(engine)
    assert found["series"] == "mlp tiny: jax-jit against its previous version"
    assert found["control"] == "previous"
    record = read_suspicion(engine, found["id"])
    assert (record.a_new.version, record.b_new.version) == ("0.9.1", "0.8.2")


def test_the_frameworks_and_each_control_are_separate_series(state: State, engine: Engine) -> None:
    documents = make_history(STEPS[:2], [JAX, TORCH])
    others = make_history(STEPS[:2], [JAX, OLD_JAX], campaign="controls")
    for each in others:
        each["duel_run"] = f"c{each['duel_run'][1:]}"
    store_history(engine, state, documents)
    store_history(engine, state, others)
    assert [each.key.control for each in read_series(engine)] == ["previous", None]


def test_nights_in_which_a_metric_was_not_measured_are_left_out(
    state: State, engine: Engine
) -> None:
    documents = make_history(STEPS[:4])
    for side in (0, 1):
        plant_amounts(documents[:3], side, "allocator_peak_bytes", [1e6] * 3)
    store_history(engine, state, documents)
    [series] = read_series(engine, metrics=("allocator_peak_bytes",))
    assert [night.log_ratio for night in series.nights] == [0.0] * 3
    assert series.nights[0].values == (1e6, 1e6)
    assert read_series(engine, metrics=("gross_mj",)) == []  # no counter for energy on this CPU


def test_rows_without_amounts_have_the_same_histories(state: State, engine: Engine) -> None:
    """As those of an older version, or of a metric that was added since."""
    documents = make_history(STEPS[:6])
    for side in (0, 1):
        plant_amounts(documents[:4], side, "allocator_peak_bytes", [1e6, 2e6, 3e6, 4e6])
        plant_amounts(documents, side, "latency_p95_ns", [3e6] * 6)
    store_history(engine, state, documents)
    stored, certified = read_series(engine, metrics=TRACKED), list_certificates(engine)
    assert {"cold_compile_s", "allocator_peak_bytes"} <= {each.key.metric for each in stored}
    rows = _read_amounts(engine)
    assert all(amounts["latency_p95_ns"] == 3e6 for amounts in rows.values())
    assert {amounts["gross_mj"] for amounts in rows.values()} == {None}
    for name in ("latency_p95_ns", "allocator_peak_bytes"):
        _replace_amounts(engine, {key: {**rows[key]} for key in rows}, without=name)
        assert read_series(engine, metrics=TRACKED) == stored
    _replace_amounts(engine, dict.fromkeys(rows))
    assert read_series(engine, metrics=TRACKED) == stored
    assert list_certificates(engine) == certified
    with begin_writing(engine) as session:
        fill_amounts(session)
    assert _read_amounts(engine) == rows


def _read_amounts(engine: Engine) -> dict[tuple[str, str], dict[str, float | None]]:
    columns = (ContenderRun.duel_run, ContenderRun.name, ContenderRun.amounts)
    with Session(engine) as session:
        return {(run, name): amounts for run, name, amounts in session.execute(select(*columns))}


def _replace_amounts(
    engine: Engine,
    rows: dict[tuple[str, str], dict[str, float | None] | None],
    without: str | None = None,
) -> None:
    with begin_writing(engine) as session:
        for key, amounts in rows.items():
            if amounts is not None and without is not None:
                del amounts[without]
            session.get_one(ContenderRun, key).amounts = amounts


def test_series_of_some_cases_are_those_of_all(state: State, engine: Engine) -> None:
    documents = make_history(STEPS[:3])
    documents[2]["allocation"]["device"]["fingerprint"] = "9" * 16
    store_history(engine, state, documents)
    here, there = list_cases(engine)
    assert read_series(engine, cases=[here]) + read_series(engine, cases=[there]) == (
        read_series(engine)
    )
    assert read_series(engine, cases=[]) == []
    assert list_cases(engine, "another") == []


def test_nights_under_equal_conditions_share_them(
    state: State, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that histories of many nights compare them at once, whatever one query reads."""
    documents = make_history(STEPS[:5])
    documents[2]["allocation"]["node"] = "another"
    store_history(engine, state, documents)
    monkeypatch.setattr(conditions, "_MOST_VARIABLES", 2)
    (series,) = read_series(engine)
    first, *others = [each.conditions for each in series.nights]
    assert [each is first for each in others] == [True, False, True, True]
    assert [each["node"] == first["node"] for each in others] == [True, False, True, True]


def test_what_other_cases_and_nights_measured_is_not_searched(state: State, engine: Engine) -> None:
    if engine.dialect.name != "sqlite":
        pytest.skip("reads the plans that SQLite makes")
    store_history(engine, state, make_history(STEPS[:3]))
    cases, key = list_cases(engine, "history"), read_series(engine)[0].key
    reads: list[Callable[[], object]] = [
        lambda: read_series(engine, metrics=TRACKED, cases=cases, days=HISTORY_DAYS),
        lambda: read_series(engine, key),
        lambda: list_certificates(engine, campaigns=["history"]),
        lambda: list_answers(engine, campaigns=["history"]),
    ]
    others = r"ix_ratio_kind|ix_contender_run_arm|SCAN (?!wanted_(?:keys|cases|groups)$)[a-z]"
    for read in reads:
        steps = _explain(engine, read)
        assert any(
            re.search(r"duel_run\w* USING INDEX ix_duel_run_(series|campaign)", s) for s in steps
        )
        assert not [s for s in steps if re.search(others, s)], steps
    of_campaigns = _explain(engine, lambda: list_campaigns(engine))
    index = "ix_duel_run_campaign_started_at"
    assert of_campaigns[0] == f"SCAN duel_run USING COVERING INDEX {index}"
    newest = _explain(engine, lambda: list_newest_campaigns(engine, 3))
    assert newest[0] == "SCAN duel_run USING INDEX ix_duel_run_started_at", "as far as its limit"
    assert newest[-1].startswith(f"SEARCH duel_run USING COVERING INDEX {index} (campaign=?")


def _explain(engine: Engine, read: Callable[[], object]) -> list[str]:
    sent = record_statements(engine, read)
    with engine.connect() as connection:
        return [
            str(row[-1]).strip()
            for text, values in sent
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)
        ]


def test_a_metric_without_a_series_is_refused_with_the_names_of_those_that_have_one(
    engine: Engine,
) -> None:
    names = r"median_step_ns, latency_p95_ns, .*cold_compile_s"
    with pytest.raises(UserError, match=rf"no metric 'host_boundness' is tracked; .*{names}"):
        read_series(engine, metrics=("host_boundness",))


def test_every_tracked_metric_says_its_direction_scale_and_smallest_change() -> None:
    assert TRACKED[0] == "median_step_ns"
    for key in TRACKED:
        metric = find_tracked(key)
        assert metric.scale is not None and metric.scale.noise_floor > 0
        assert metric.scale.smallest > 0 or metric.scale.smallest_count > 0
        assert metric.log_ratio(1.0, 2.0) > 0
    assert next(e for e in METRICS if e.key == "items_per_s").log_ratio(1.0, 2.0) < 0


def test_every_quantity_that_a_proof_measures_has_series_of_its_error() -> None:
    """Those of the workloads as they are, and of the stored proofs."""
    results = Path(__file__).parents[4] / "results"
    stored = {
        row["quantity"]
        for path in results.glob("*/proofs/*.json")
        for row in json.loads(path.read_text())["rows"]
    }
    proven = {
        quantity
        for workload in list_workloads()
        for use_case in proof_use_cases(workload)
        for quantity in list_proven(workload, use_case)
    }
    assert {"logits", "gradient", "clipped_sum", "running_var"} <= stored <= proven
    assert {f"{quantity}_error" for quantity in proven} == {each.key for each in ERRORS}
    assert {each.key for each in ERRORS} < {*TRACKED}


def _release(
    documents: list[dict[str, Any]], shifts: dict[str, float], versions: list[str]
) -> None:
    """Let JAX's newest and previous versions roll, every 12 nights, with such step times."""
    for night, document in enumerate(documents):
        row = 1 + night // 12
        for contender, version in zip(
            document["contenders"], (versions[row], versions[row - 1]), strict=True
        ):
            contender |= {"version": version, "name": f"jax-{version}"}
            contender["environment"]["key"] = f"jax-{version}"
            for block in contender["starts"][0]["blocks"]:
                block["elapsed_ns"] = round(block["elapsed_ns"] * math.exp(shifts[version]))
        names = [each["name"] for each in document["contenders"]]
        for each in document["equivalence"]:
            each |= {"a": names[0], "b": names[1]}


def test_a_shift_is_seen_once_although_its_version_becomes_the_control(
    state: State, engine: Engine
) -> None:
    """0.9.2 is 10 % slower, and 0.9.3 is as slow: against its previous version it is even again."""
    logs = np.random.default_rng(9).normal(0.0, 0.004, 36)
    documents = make_history(logs.tolist(), [JAX, OLD_JAX])
    slower = {"0.9.0": 0.0, "0.9.1": 0.0, "0.9.2": math.log(1.1), "0.9.3": math.log(1.1)}
    _release(documents, slower, list(slower))
    store_history(engine, state, documents)
    refresh_suspicions(engine)
    [found] = list_suspicions(engine)
    assert (found["since_run"], found["trigger"]) == (f"{12:016x}", "shift")
    assert found["ratio"] == pytest.approx(1 / 1.1, rel=0.01)
    record = read_suspicion(engine, found["id"])
    assert [each.version for each in (record.a_old, record.a_new)] == ["0.9.1", "0.9.2"]
    assert [each.version for each in (record.b_old, record.b_new)] == ["0.9.0", "0.9.0"]
    assert record.levels.b == "jax (previous)"
    [series] = read_series(engine)
    assert len(series.nights) == 36
    assert np.median(series.values[24:]) == pytest.approx(1 / 1.1, rel=0.01)


def test_a_control_that_was_never_the_newest_begins_anew(state: State, engine: Engine) -> None:
    documents = make_history([0.0, 0.01, 0.02, 0.03], [JAX, OLD_JAX])
    for document in documents[2:]:
        document["contenders"][1]["version"] = "0.8.3"
    store_history(engine, state, documents)
    [series] = read_series(engine)
    assert [night.number for night in series.nights] == [739619, 739620]
    assert [night.offset for night in series.nights] == [0.0, 0.0]


def _prove(engine: Engine, errors: dict[str, float], use_case: str | None = None) -> None:
    """A proof of each of these JAX environments against torch, for the kind of the first duel."""
    with Session(engine) as session, session.begin():
        duel = session.scalars(select(DuelRun).limit(1)).one()
        of_case = ("workload", "precision", "checkpoint", "snapshot", "device_fingerprint")
        for key, error in errors.items():
            session.add(
                Proof(
                    **{name: getattr(duel, name) for name in of_case},
                    use_case=use_case or duel.use_case,
                    a_key=key,
                    b_key="torch-2.10.0",
                    a=key,
                    b="torch",
                    quantity="loss",
                    num_seeds=1,
                    a_error=error,
                    b_error=2e-7,
                    passed=True,
                    reason="",
                    proved_at=duel.ended_at,
                )
            )


@pytest.mark.parametrize(
    ("error", "use_case", "found"),
    [(4e-7, None, ["loss_error"]), (2.2e-7, None, []), (4e-7, "infer", [])],
)
def test_a_release_that_computes_less_exactly_is_a_suspicion_of_that_error(
    state: State, engine: Engine, error: float, use_case: str | None, found: list[str]
) -> None:
    eager, newest = replace(TORCH, arm="torch-eager"), replace(JAX, version="0.9.1")
    store_history(engine, state, make_history(STEPS, [JAX, eager], later=[newest, eager], since=18))
    _prove(engine, {"jax-0.9.0": 2e-7, "jax-0.9.1": error}, use_case)
    refresh_suspicions(engine)
    suspicions = list_suspicions(engine)
    assert [each["metric"] for each in suspicions] == found
    for each in suspicions:
        assert (each["ratio"], each["since_run"]) == (pytest.approx(0.5), f"{18:016x}")
        assert read_suspicion(engine, each["id"]).levels.noun == "error of the loss against float64"


def test_an_arm_that_no_proof_computed_with_has_no_error(state: State, engine: Engine) -> None:
    store_history(engine, state, make_history(STEPS))  # torch-compile
    _prove(engine, {"jax-0.9.0": 2e-7})
    assert read_series(engine, metrics=("loss_error",)) == []

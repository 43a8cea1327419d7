"""A search by another metric than step time judges that metric, one value per start."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from written_starts import WrittenStarts

from benchcore.errors import UserError
from benchcore.experiments.changes import bisect
from benchcore.experiments.changes.bisect import BisectRequest, run_bisection
from benchcore.experiments.changes.dependencies import draft_pair
from benchcore.experiments.changes.pairs import BisectTarget, PairRounds, find_bound
from benchcore.experiments.rounds import RunContext
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import load_profile
from benchcore.protocol import EnvironmentRecord
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.verdict.samples import EQUIVALENCE_BOUND, Judgement

CONTEXT = RunContext(profile=load_profile("ci"), site="local")
TARGET = BisectTarget(framework="jax", good="0.9.0", bad="0.9.1", workload="matmul", case="tiny_op")


def _environment(root: Path, version: str, framework: str = "jax") -> EnvironmentRecord:
    python = root / version / "python"
    python.parent.mkdir(exist_ok=True)
    python.symlink_to("/usr/bin/env")
    return EnvironmentRecord(
        name=f"{framework}-{version}",
        key=version,
        lock_sha256="0" * 64,
        python=str(python),
        python_version="3.13.0",
        build="cpu",
        packages={framework: version},
    )


def _judge(
    target: BisectTarget, amount: float, state: State, noise: float
) -> tuple[Judgement, list[Plan]]:
    """The verdict on five written starts; version 0.9.1 has `amount`, the old one 1000."""
    records = {each: _environment(state.root, each) for each in ("0.9.0", "0.9.1")}
    engine = open_database(state.database_url)
    amounts = {"0.9.0": 1000.0, "0.9.1": amount}
    written = WrittenStarts(state, engine, target.metric, amounts, noise)

    def draft(old: str, new: str, starts: range, fresh: bool) -> Plan:
        pair = [records[old], records[new]]
        return draft_pair(target, pair, starts, CONTEXT, fresh=fresh, first=True)

    rounds = PairRounds[str](target, written, engine, draft, lambda a, b: f"{a} against {b}")
    found = rounds.judge("0.9.0", "0.9.1", 5, False)
    engine.dispose()
    return found, written.plans


@pytest.mark.parametrize(
    ("metric", "amount", "verdict", "noise"),
    [
        ("cold_compile_s", 1400.0, "different", 0.02),
        ("cold_compile_s", 1000.0, "same", 0.02),
        ("process_peak_bytes", 1100.0, "different", 0.0),
        ("process_peak_bytes", 1000.0, "same", 0.0),
        ("program_ops", 1001.0, "different", 0.0),
        ("latency_p95_ns", 1000.0, "same", 0.01),
    ],
)
def test_the_metric_is_judged_over_starts_that_are_duels_of_their_own(
    metric: str, amount: float, verdict: str, noise: float, state: State
) -> None:
    target = dataclasses.replace(TARGET, metric=metric, bound=find_bound(metric))
    found, (plan,) = _judge(target, amount, state, noise)
    assert found.verdict == verdict, found
    pairs = [each for each in plan.duels if each.case == "tiny_op"]
    assert len({each.duel_run for each in pairs}) == len({each.seed for each in pairs}) == 5
    assert {each.limits.starts for each in pairs} == {1}
    assert len(plan.duels) > 5, "without ceilings no pair counts"


def test_a_start_without_the_metric_is_lost(state: State) -> None:
    target = dataclasses.replace(TARGET, metric="process_peak_bytes")
    found, _ = _judge(target, 0.0, state, 0.0)
    assert (found.verdict, found.reason) == ("unknown", "jax-jit-0.9.1 was not measured")


def test_names_of_searches_by_step_time_are_as_before() -> None:
    assert TARGET.name == "bisect-jax-e7ac31aedc"
    assert dataclasses.replace(TARGET, metric="cold_compile_s").name != TARGET.name
    assert find_bound(TARGET.metric) == EQUIVALENCE_BOUND


def test_an_unknown_metric_is_bad_input(state: State) -> None:
    target = dataclasses.replace(TARGET, metric="charm")
    request = BisectRequest(target=target, looks=(5,), context=CONTEXT)
    with pytest.raises(UserError, match="no metric 'charm' is tracked"):
        run_bisection(request, state, WrittenStarts(state, None, "", {}, 0.0))  # type: ignore[arg-type]


_LOCKS = {"good": "old.lock", "bad": "new.lock"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"framework": "torch", "workload": "mlp", "case": "tiny_infer"}, "got 'torch-compile'; "),
        (
            {"workload": "mlp", "case": "tiny_infer", "settings": ("donate=no",)},
            "got 'jax-jit-no-donation'; write `--set compile=none` alone for torch",
        ),
        ({}, "matmul has no proof of the use case 'op'"),
        (
            {**_LOCKS, "framework": "torch", "workload": "mlp", "case": "tiny_infer"},
            "write `--set compile=none`",
        ),
    ],
)
def test_an_error_that_no_proof_measures_is_refused_before_anything_is_measured(
    state: State, changes: dict[str, Any], reason: str
) -> None:
    target = dataclasses.replace(TARGET, metric="logits_error", **changes)
    request = BisectRequest(target=target, looks=(5,), context=CONTEXT, dependencies=True)
    with pytest.raises(UserError, match=f"whose logits_error a proof measures.*{reason}"):
        run_bisection(request, state, WrittenStarts(state, None, "", {}, 0.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "case", "measured"),
    [
        ("gradient_error", "infer_b32", "logits_error"),
        ("logits_error", "train_b32", "loss_error, gradient_error, update_error, loss_trace_error"),
        ("statistics_error", "per_sample_grad_b32", "norms_error, clipped_sum_error"),
    ],
)
def test_an_error_of_another_use_case_is_refused_with_those_that_its_proof_measures(
    state: State, metric: str, case: str, measured: str
) -> None:
    target = dataclasses.replace(TARGET, metric=metric, workload="mnist_cnn", case=case)
    request = BisectRequest(target=target, looks=(5,), context=CONTEXT)
    wanted = f"the proof of mnist_cnn {case} measures .{measured}.*, got '{metric}'; choose one"
    with pytest.raises(UserError, match=wanted):
        run_bisection(request, state, WrittenStarts(state, None, "", {}, 0.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("framework_settings", [("jax", ()), ("torch", ("compile=none",))])
@pytest.mark.parametrize(
    ("case", "metric"),
    [
        *(("infer_b32", "logits_error"), ("train_b32", "travel_error")),
        ("per_sample_grad_b32", "clipped_sum_error"),
    ],
)
def test_an_error_of_a_proven_arm_is_searched(
    state: State,
    monkeypatch: pytest.MonkeyPatch,
    framework_settings: tuple[str, tuple[str, ...]],
    case: str,
    metric: str,
) -> None:
    framework, settings = framework_settings
    found = {"summary": "searched"}
    monkeypatch.setattr(bisect, "run_dependency_search", lambda *_: dict(found))
    target = dataclasses.replace(
        TARGET,
        framework=framework,
        workload="mnist_cnn",
        case=case,
        settings=settings,
        metric=metric,
        **_LOCKS,
    )
    request = BisectRequest(target=target, looks=(5,), context=CONTEXT, dependencies=True)
    measurer = WrittenStarts(state, None, "", {}, 0.0)  # type: ignore[arg-type]
    assert run_bisection(request, state, measurer)["summary"] == "searched"


def test_further_packages_stay_in_the_environments_and_in_the_arm(tmp_path: Path) -> None:
    target = dataclasses.replace(
        TARGET,
        framework="torch[opacus]",
        workload="mnist_cnn",
        case="tiny_per_sample_grad",
        settings=("compile=none",),
    )
    assert target.name.startswith("bisect-torch-")
    assert target.search_command.startswith("deadheat bisect 'torch[opacus]' --workload mnist_cnn ")
    records = [_environment(tmp_path, each, "torch") for each in ("2.9.0", "2.9.1")]
    plan = draft_pair(target, records, range(3), CONTEXT)
    assert {each.extras for each in plan.releases.values()} == {("opacus",)}
    assert {each.arm for each in plan.duels[0].contenders} == {"torch-eager-with-opacus"}

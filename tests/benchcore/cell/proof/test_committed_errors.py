"""Errors that real frameworks make here on purpose: their manifests or the physics show them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from duel_orders import make_contender, make_order

from benchcore.protocol import EnvironmentRecord
from benchcore.running.duel_process import run_duel
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.verdict.duel.parity import Parity, ParitySide, compare_sides
from data_checks.check import check_campaign

pytestmark = pytest.mark.provisions
ROOT = Path(__file__).parents[4]
Read = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def read(
    framework_python: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Read]:
    """By framework and error; one process a framework commits them all."""
    found = {}
    for framework in ("jax", "torch"):
        out = tmp_path_factory.mktemp("committed") / f"{framework}.json"
        script = str(Path(__file__).with_name("commit_errors.py"))
        done = subprocess.run(
            [str(framework_python(framework)), "-P", "-s", script, framework, str(out)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found[framework] = json.loads(out.read_text())
    return found


def _compare(read: dict[str, Read], jax: str, torch: str) -> Parity:
    """A pair in the default track, each side as it ran with one error or none."""
    return compare_sides(_side(read, "jax", jax), _side(read, "torch", torch), "default")


def _side(read: dict[str, Read], framework: str, error: str, **requested: str) -> ParitySide:
    """`requested` are further settings of the arm."""
    found = read[framework][error]
    return ParitySide(
        name=framework,
        framework=framework,
        settings={**found["settings"], **requested},
        manifest=found["manifest"],
    )


def test_real_frameworks_with_the_same_settings_are_a_fair_pair(read: dict[str, Read]) -> None:
    parity = _compare(read, "infer", "compiled")
    assert (parity.violations, parity.fair) == ((), True)


def test_real_eager_torch_is_no_fair_pair_and_a_fallback_to_it_is_void(
    read: dict[str, Read],
) -> None:
    eager = _compare(read, "train", "eager")
    assert (eager.violations, eager.fair) == ((), False)
    assert eager.labels == ("compiled 'yes' on jax, 'no' on torch",)
    assert _compare(read, "train", "fell back").violations == (
        "compiled of torch reads 'no', where 'yes' is required",
    )
    assert _compare(read, "not jitted", "compiled").violations == (
        "compiled of jax reads 'no', where 'yes' is required",
    )


def test_a_real_graph_that_nothing_compiles_is_void(read: dict[str, Read]) -> None:
    (found,) = _compare(read, "infer", "captured alone").violations
    assert found.startswith("compiled whole of torch reads 'no compiled graph; outside of compiled")


def test_real_eager_sides_are_a_fair_pair_and_one_that_is_jitted_after_all_is_void(
    read: dict[str, Read],
) -> None:
    eager = _compare(read, "eager operations", "eager operations")
    assert (eager.violations, eager.labels, eager.fair) == ((), (), True)
    assert _compare(read, "jitted after all", "eager operations").violations == (
        "compiled of jax reads 'yes', where 'no' is required",
    )


def test_real_autocast_against_bf16_parameters_is_void(read: dict[str, Read]) -> None:
    assert _compare(read, "autocast", "bf16").violations == (
        "param dtype 'float32' on jax, 'bfloat16' on torch",
    )


def test_a_real_layout_that_the_arm_did_not_request_is_void(read: dict[str, Read]) -> None:
    requested = _side(read, "torch", "other layout", layout="channels_last")
    assert compare_sides(requested, requested, "default").violations == ()
    assert compare_sides(requested, _side(read, "torch", "other layout"), "default").violations == (
        "layout of torch reads 'NHWC', where 'NCHW' is required",
    )


def test_a_real_step_that_keeps_its_buffers_is_void(read: dict[str, Read]) -> None:
    assert _compare(read, "not donated", "eager").violations == (
        "state update of jax reads 'copied', where 'in place' is required",
    )


@pytest.mark.parametrize(
    ("jax", "torch", "words"),
    [
        ("train", "dropout", "dropout 'none' on jax, 'random' on torch"),
        ("dropout", "eager", "dropout 'random' on jax, 'none' on torch"),
    ],
)
def test_real_dropout_on_one_side_is_void(
    read: dict[str, Read], jax: str, torch: str, words: str
) -> None:
    assert _compare(read, jax, torch).violations == (words,)


def test_a_real_tf32_switch_on_one_side_is_void(read: dict[str, Read]) -> None:
    assert _compare(read, "infer", "eager infer").violations == ()
    assert _compare(read, "infer", "tf32").violations == (
        "matmul precision 'ieee' on jax, 'tf32' on torch",
    )


def test_a_real_attention_or_flag_that_the_arm_did_not_choose_is_void(
    read: dict[str, Read],
) -> None:
    assert _compare(read, "attention", "one attention").violations == ()
    assert _compare(read, "attention", "any attention").violations == (
        "attention of torch reads 'usual', where 'math' is required",
    )
    assert _compare(read, "flag", "one attention").violations == (
        "xla of jax reads 'wide-vectors', where 'usual' is required",
    )


def test_cudnn_autotuning_changes_nothing_on_a_cpu(read: dict[str, Read]) -> None:
    assert read["torch"]["autotuned"]["manifest"]["autotune"] == "none"
    assert _compare(read, "infer", "autotuned").violations == ()


_DEAD = """
import jax
import numpy as np
from benchcore.program import Program

def build(case, arrays, settings):
    a, b = (jax.device_put(arrays.inputs[name]) for name in ("a", "b"))
    alive = jax.jit(lambda a, b: a @ b)
    dead = jax.jit(lambda a, b: (a @ b, a[0, 0])[1])  # nobody wants the product: XLA drops it
    assert "dot(" not in dead.lower(a, b).compile().as_text()

    def place(inputs):  # the product too, where no clock runs
        return tuple(jax.device_put(inputs[name]) for name in ("a", "b")) + (
            alive(*(jax.device_put(inputs[name]) for name in ("a", "b"))),
        )

    return Program(
        place=place,
        step=lambda inputs: (dead(*inputs[:2]), inputs[2]),
        read=lambda output: {"product": np.asarray(output[1])},
    )
"""


def test_real_dead_code_is_faster_than_physics_allows(
    tmp_path: Path,
    framework_environment: Callable[[str], EnvironmentRecord],
    forking_snapshot: Path,
    disturbed_blocks: None,
) -> None:
    state = open_state(tmp_path / "state")
    dead = forking_snapshot / "benchcore" / "workloads" / "dead"
    dead.mkdir()
    (dead / "__init__.py").touch()
    (dead / "spec.py").write_text("from benchcore.workloads.matmul.spec import *\n")
    (dead / "in_jax.py").write_text(_DEAD)
    contender = make_contender(
        "jax",
        framework="jax",
        arm="jax-jit",
        settings={"compile": "jit"},
        environment=framework_environment("jax@newest"),
    )
    limits = {"prepare_timeout_s": 120.0, "block_timeout_s": 60.0}
    limits |= {"starts": 1, "rounds": 2, "passes": False}
    # Two sentinels: how far they differ says how far a ceiling can be believed.
    for workload, duel_run in (("matmul", "a"), ("matmul", "b"), ("dead", "d")):
        order = make_order(
            contender, workload=workload, case="cpu_1024", duel_run=duel_run * 16, **limits
        )
        run_duel(order, state, forking_snapshot, lambda event: None)
    engine = open_database(state.database_url)
    assert ingest_spool(engine, state).rejected == ()
    marks = check_campaign(engine, "test").failed_checks
    contenders = contender_frame(engine, "test")
    contenders = contenders.drop_duplicates("workload").set_index("workload")
    engine.dispose()
    found = {(mark.duel_run[0], mark.expectation) for mark in marks}
    assert found == {("d", "work of the case"), ("d", "invalid_physics")}
    assert contenders["status"].to_dict() == {"matmul": "ok", "dead": "invalid_physics"}
    assert contenders.loc["dead", "limit_share"] > 20

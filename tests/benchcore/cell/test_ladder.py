"""The crash ladder: what climbs it, in which order, and what it leaves in the result."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from duel_orders import make_contender, make_order

from benchcore.cell import ladder
from benchcore.cell.ladder import RUNGS, Cause, classify, climbs, usable_rungs
from benchcore.shard import run_duel
from benchcore.snapshot import list_inside_files
from benchcore.state import State, open_state
from benchcore.store.documents import read_document


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("XlaRuntimeError: INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal", "illegal_address"),
        ("INTERNAL: Autotuning failed for HLO: %fusion", "autotuning"),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate", "out_of_memory"),
        ("Autotuning failed: RESOURCE_EXHAUSTED: no room", "out_of_memory"),
        ("killed by SIGSEGV", "signal"),
        ("killed by SIGABRT", "signal"),
        ("ValueError: wanted a device", "other"),
    ],
)
def test_a_failure_is_classified_by_what_it_says(text: str, cause: Cause) -> None:
    assert classify(text) == cause


@pytest.mark.parametrize(
    ("framework", "status", "text", "expected"),
    [
        ("jax", "crash", "CUDA_ERROR_ILLEGAL_ADDRESS", True),
        ("jax", "crash", "killed by SIGSEGV", True),
        ("torch", "crash", "CUDA_ERROR_ILLEGAL_ADDRESS", False),
        ("jax", "oom", "RESOURCE_EXHAUSTED", False),
        ("jax", "timeout", "Autotuning failed", False),
        ("jax", "numerics", "Autotuning failed", False),
        ("jax", "crash", "ValueError", False),
    ],
)
def test_only_crashes_of_jax_climb(framework: str, status: str, text: str, expected: bool) -> None:
    assert climbs(framework, status, text) is expected


def test_rungs_go_from_the_narrowest_cure_to_the_widest() -> None:
    flags = [" ".join(rung.flags) for rung in usable_rungs(lambda flag: True)]
    assert flags == [
        "",
        "--xla_gpu_autotune_level=5",
        "--xla_gpu_enable_triton_gemm=false",
        "--xla_gpu_experimental_enable_fusion_autotuner=false",
        "--xla_gpu_autotune_level=0",
    ]


def test_a_flag_that_xla_does_not_know_is_passed_over() -> None:
    rungs = usable_rungs(lambda flag: "triton" not in flag)
    assert [rung.number for rung in rungs] == [1, 2, 4, 5]
    assert len(RUNGS) == 5


def test_a_flag_is_known_if_xla_starts_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XLA aborts at one that it does not know; here one that it hangs at is unknown too."""
    (tmp_path / "jax.py").write_text(
        "import os, time\n"
        "def devices():\n"
        "    'bad' in os.environ['XLA_FLAGS'] and os.abort()\n"
        "    'slow' in os.environ['XLA_FLAGS'] and time.sleep(60)\n"
    )
    environ = {"PYTHONPATH": str(tmp_path)}
    assert ladder.knows_flag(sys.executable, environ, "--good")
    assert not ladder.knows_flag(sys.executable, environ, "--bad")
    real = subprocess.run
    monkeypatch.setattr(
        ladder.subprocess, "run", lambda *args, **kw: real(*args, **{**kw, "timeout": 0.5})
    )
    assert not ladder.knows_flag(sys.executable, environ, "--slow")


CURE = "--xla_gpu_enable_triton_gemm=false"
_FAKE_JAX = """
import os, sys

def devices():
    if "autotune_level=5" in os.environ.get("XLA_FLAGS", ""):
        os.abort()  # as XLA does at a flag that it does not know
"""
_CRASHES_WITHOUT = """
import os
from benchcore.program import Program

def build(case, arrays, settings):
    if {cure!r} not in os.environ.get("XLA_FLAGS", ""):
        raise RuntimeError({words!r})
    return Program(step=lambda: None, evidence=dict)
"""


def _run(tmp_path: Path, *, cure: str, words: str) -> dict[str, Any]:
    """A duel of a JAX that is a fake, and crashes unless it is given a flag."""
    snapshot, state = tmp_path / "snapshot", open_state(tmp_path / "state")
    root = Path(__file__).parents[3]
    for file in list_inside_files():
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, snapshot / file)
    cell = snapshot / "benchcore" / "cell"
    shutil.copyfile(cell / "stdlib_runtime.py", cell / "jax_runtime.py")
    (snapshot / "jax.py").write_text(_FAKE_JAX)
    workload = snapshot / "benchcore" / "workloads" / "noop" / "in_jax.py"
    workload.write_text(_CRASHES_WITHOUT.format(cure=cure, words=words))
    jax = make_contender("jax", framework="jax", version="0.10.1", arm="jax-jit")
    order = make_order(jax, make_contender("bare"), rounds=2)
    return _contenders(order, state, snapshot)


def _contenders(order: Any, state: State, snapshot: Path) -> dict[str, Any]:
    document = read_document(run_duel(order, state, snapshot, lambda event: None))
    return {each["name"]: each for each in document["contenders"]}


def test_a_crash_is_worked_around_by_the_narrowest_cure_and_said_so(tmp_path: Path) -> None:
    contenders = _run(tmp_path, cure=CURE, words="INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS")
    assert contenders["bare"]["status"] == "ok"
    jax = contenders["jax"]
    assert jax["status"] == "workaround"
    assert jax["failure"]["reason"].startswith(f"rung 3 ({CURE}) helped after: ")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in jax["failure"]["reason"]
    assert [bool(start["blocks"]) for start in jax["starts"]] == [True, True]


def test_a_crash_that_nothing_cures_stays_a_crash(tmp_path: Path) -> None:
    jax = _run(tmp_path, cure="--no-such-flag", words="Autotuning failed for HLO")["jax"]
    assert (jax["status"], "Autotuning failed" in jax["failure"]["reason"]) == ("crash", True)


def test_what_is_no_crash_of_the_autotuner_climbs_no_ladder(tmp_path: Path) -> None:
    jax = _run(tmp_path, cure=CURE, words="RESOURCE_EXHAUSTED: no room")["jax"]
    assert (jax["status"], jax["starts"][0]["status"]) == ("oom", "oom")

"""Workarounds for crashes of XLA: who may retry, in which order, and which flags XLA knows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchcore.cell.failures import workarounds
from benchcore.cell.failures.status import Cause
from benchcore.cell.failures.workarounds import (
    WORKAROUNDS,
    may_retry,
    usable_workarounds,
    xla_flags_of,
)
from benchcore.workloads.settings import WORKAROUND_FLAGS


@pytest.mark.parametrize(
    ("framework", "status", "cause", "expected"),
    [
        ("jax", "crash", "illegal_address", True),
        ("jax", "crash", "cuda_error", True),
        ("jax", "crash", "autotuning", True),
        ("jax", "crash", "signal", True),
        ("torch", "crash", "illegal_address", False),
        ("jax", "oom", "out_of_memory", False),
        ("jax", "timeout", "autotuning", False),
        ("jax", "numerics", "autotuning", False),
        ("jax", "crash", "hardware", False),
        ("jax", "crash", "garbage", False),
        ("jax", "crash", "exception", False),
    ],
)
def test_only_crashes_of_jax_are_retried(
    framework: str, status: str, cause: Cause, expected: bool
) -> None:
    assert may_retry(framework, status, cause) is expected


def test_workarounds_go_from_the_narrowest_to_the_widest() -> None:
    flags = [" ".join(each.flags) for each in usable_workarounds("cuda:0", lambda flag: True)]
    assert flags == [
        "",
        "--xla_gpu_autotune_level=5",
        "--xla_gpu_enable_triton_gemm=false",
        "--xla_gpu_experimental_enable_fusion_autotuner=false",
        "--xla_gpu_autotune_level=0",
    ]


def test_each_workaround_flag_is_a_setting_of_an_arm() -> None:
    """Under the name that it has among JAX's settings, on a GPU only."""
    assert ("none", *(each.name for each in WORKAROUNDS if each.flags)) == WORKAROUND_FLAGS
    for workaround in WORKAROUNDS:
        settings = {"compile": "jit", "workaround": workaround.name, "command_buffers": "off"}
        own = ("--xla_gpu_enable_command_buffer=",)
        assert xla_flags_of(settings, "cuda:0") == (*own, *workaround.flags)
        assert xla_flags_of(settings, "cpu") == ()
    assert xla_flags_of({"compile": "jit", "workaround": "none"}, "cuda:0") == ()
    several = {"compile": "jit", "processes": "per-device"}
    assert xla_flags_of(several, "cuda:0") == ("--xla_gpu_shard_autotuning=false",)
    assert xla_flags_of(several, "cpu") == ()


def test_a_flag_that_xla_does_not_know_is_passed_over() -> None:
    usable = usable_workarounds("cuda", lambda flag: "triton" not in flag)
    assert [each.number for each in usable] == [1, 2, 4, 5]
    assert len(WORKAROUNDS) == 5


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
    assert workarounds.knows_flag(sys.executable, environ, "--good")
    assert not workarounds.knows_flag(sys.executable, environ, "--bad")
    real = subprocess.run
    monkeypatch.setattr(
        workarounds.subprocess, "run", lambda *args, **kw: real(*args, **{**kw, "timeout": 0.5})
    )
    assert not workarounds.knows_flag(sys.executable, environ, "--slow")


def test_on_a_cpu_no_flag_of_a_gpu_is_checked() -> None:
    checked: list[str] = []
    usable = usable_workarounds("cpu", lambda flag: bool(checked.append(flag)) or True)
    assert [(each.number, each.flags) for each in usable] == [(1, ())]
    assert checked == []

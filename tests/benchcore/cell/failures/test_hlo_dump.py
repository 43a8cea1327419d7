"""The HLO of a crash: what is kept of a dump, and that a real JAX which dies leaves one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from duel_orders import copy_inside_ring, make_contender, make_order, run_order

from benchcore.cell.failures import hlo_dump
from benchcore.cell.failures.status import ContenderFailedError
from benchcore.cell.failures.workarounds import Workaround
from benchcore.protocol import EnvironmentRecord
from benchcore.state import open_state

_BEFORE, _AFTER = ".before_optimizations.txt", ".cpu_after_optimizations.txt"


def _save(tmp_path: Path, files: Mapping[str, int], *, device: str = "cuda:0") -> Any:
    def run(workaround: Workaround) -> ContenderFailedError | None:
        folder = Path(workaround.flags[0].partition("=")[2])
        for name, size in files.items():
            (folder / name).write_text("h" * size)
        return None

    return hlo_dump.save_hlo(run, tmp_path / "hlo" / "jax", device, ())


def test_a_module_that_was_never_compiled_is_the_suspect(tmp_path: Path) -> None:
    files = {
        f"module_0009.a{_BEFORE}": 9,
        f"module_0009.a{_AFTER}": 9,
        f"module_0010.b{_BEFORE}": 1,
    }
    kept = _save(tmp_path, files)
    assert kept["command"].endswith(f" module_0010.b{_BEFORE}")
    assert not kept["crashed_again"]


def test_if_all_were_compiled_the_largest_module_is_the_suspect(tmp_path: Path) -> None:
    files = {
        f"module_000{n}.m{end}": size for n, size in ((1, 9), (2, 1)) for end in (_BEFORE, _AFTER)
    }
    assert _save(tmp_path, files)["command"].endswith(f" module_0001.m{_BEFORE}")


def test_files_beyond_the_limit_are_left_out_and_counted_the_suspect_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hlo_dump, "MOST_BYTES", 100)
    files = {
        **{f"module_0001.old{end}": 40 for end in (_BEFORE, _AFTER)},
        **{f"module_0002.new{end}": 20 for end in (_BEFORE, _AFTER)},
    }
    kept = _save(tmp_path, files)
    names = [f"module_0001.old{_BEFORE}", f"module_0002.new{_BEFORE}", f"module_0002.new{_AFTER}"]
    assert kept["files"] == sorted(names)
    assert (kept["bytes"], kept["left_out"]) == (80, 1)


def test_a_dump_without_a_program_is_none(tmp_path: Path) -> None:
    assert _save(tmp_path, {"jit_f.ptx": 5}) is None
    assert not (tmp_path / "hlo").exists()


@pytest.mark.parametrize(("stage", "expected"), [("init", False), ("build", True), ("block", True)])
def test_before_there_was_a_program_there_is_no_hlo(stage: str, expected: bool) -> None:
    assert hlo_dump.may_have_compiled(stage) is expected


_DIES = """

import dataclasses, os

_healthy = build

def build(case, arrays, settings):
    program = _healthy(case, arrays, settings)

    def step(inputs):
        jax.block_until_ready(program.step(inputs))
        os.abort()

    return dataclasses.replace(program, step=step)
"""


@pytest.mark.provisions
def test_a_real_jax_that_dies_after_compilation_leaves_its_hlo(
    framework_environment: Callable[[str], EnvironmentRecord], tmp_path: Path
) -> None:
    snapshot = tmp_path / "snapshot"
    copy_inside_ring(snapshot)
    with (snapshot / "benchcore" / "workloads" / "mlp" / "in_jax.py").open("a") as source:
        source.write(_DIES)
    record = framework_environment("jax@newest")
    jax = make_contender(
        "jax",
        framework="jax",
        version=record.packages["jax"],
        settings={"compile": "jit"},
        environment=record,
    )
    limits = {"prepare_timeout_s": 120.0, "block_timeout_s": 30.0, "starts": 1}
    order = make_order(jax, workload="mlp", case="tiny_infer", **limits)
    state = open_state(tmp_path / "state")
    (found,) = run_order(order, state, snapshot)["contenders"]
    assert (found["status"], found["failure"]["cause"]) == ("crash", "signal")
    assert [each["status"] for each in found["ladder"]["attempts"]] == ["crash"]
    kept = found["ladder"]["hlo"]
    assert kept is not None
    assert kept["crashed_again"]
    assert kept["command"].startswith("run_hlo_module --platform=cpu --reference_platform= module_")
    folder = state.campaigns / order.campaign / "duels" / order.duel_run / kept["folder"]
    suspect = (folder / kept["command"].split()[-1]).read_text()
    assert suspect.startswith("HloModule jit_")
    assert suspect.count(" dot(") > 1

"""The crash ladder: what starts it, in which order, and what it leaves in the result."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from duel_orders import (
    add_gpus,
    add_workload,
    copy_inside_ring,
    make_contender,
    make_order,
    run_order,
)

from benchcore.protocol import DuelOrder
from benchcore.state import open_state

FLAG = "--xla_gpu_enable_triton_gemm=false"
_FAKE_JAX = """
import os, sys

def devices():
    if "autotune_level=5" in os.environ.get("XLA_FLAGS", ""):
        os.abort()  # as XLA does at a flag that it does not know
"""
_SPEC = """
import dataclasses
from benchcore.workloads.noop.spec import *

CASES = {{name: dataclasses.replace(case, precision="{precision}") for name, case in CASES.items()}}

def tolerances(case):
    return {{"value": 1e-3}}

SPEC = dataclasses.replace(SPEC, cases=CASES, tolerances=tolerances)
"""
_WORKLOAD = """
import time
import numpy as np
from benchcore import shaky
from benchcore.program import Program

def build(case, arrays, settings):
    return Program(
        step=lambda inputs: time.sleep(0.0002),
        read=lambda outputs: {"value": np.full(2, shaky.VALUE)},
    )
"""
# Only the fake JAX imports this for itself; bare Python is never shaken.
_SHAKY = """
import ctypes, os, sys

LOG = {log!r}
FLAGS = os.environ.get("XLA_FLAGS", "")
AVOIDED = {flag!r} in FLAGS
SHAKEN = "benchcore.cell.runtimes.jax_runtime" in sys.modules
PRECISION = None
VALUE = 1.0 if SHAKEN and not AVOIDED else 2.0
DUMP = FLAGS.partition("--xla_dump_to=")[2].partition(" ")[0]
if SHAKEN:
    with open(LOG + ".dumps" if DUMP else LOG, "a") as stream:
        stream.write(FLAGS + "\\n")
    LAUNCH = len(open(LOG).readlines())
if DUMP:
    for name, size in {dumps!r}.items():
        with open(os.path.join(DUMP, name), "w") as stream:
            stream.write("h" * size)

def shake(stage):
    if SHAKEN and not AVOIDED and stage == {stage!r} and ({when}):
        {how}
"""


@dataclass(frozen=True, kw_only=True)
class Shake:
    """How a fake JAX crashes: in which stage, which of its launches, and which flag avoids it."""

    stage: str = "build"
    when: str = "True"
    how: str = 'raise RuntimeError("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal address")'
    flag: str = FLAG
    precision: str = "fp32_ieee"
    dumps: Mapping[str, int] = field(default_factory=dict)
    """What XLA dumps of it: bytes by file name."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def _prepare(folder: Path, shake: Shake) -> None:
    """A snapshot whose JAX is a fake on a fake GPU, and crashes as ordered."""
    snapshot = folder / "snapshot"
    copy_inside_ring(snapshot)
    add_gpus(snapshot, 1)
    (snapshot / "jax.py").write_text(_FAKE_JAX)
    add_workload(snapshot, "shaky", _SPEC.format(precision=shake.precision), _WORKLOAD)
    workload = snapshot / "benchcore" / "workloads" / "shaky"
    shutil.copyfile(workload / "in_stdlib.py", workload / "in_jax.py")
    settings = {"log": str(folder / "launches"), **dataclasses.asdict(shake)}
    (snapshot / "benchcore" / "shaky.py").write_text(_SHAKY.format(**settings))
    cell = snapshot / "benchcore" / "cell"
    runtime = (cell / "runtimes" / "stdlib_runtime.py").read_text()
    assert 'if device != "cpu"' in runtime
    runtime = runtime.replace('if device != "cpu"', "if False")
    for name in ("jax", "stdlib"):
        (cell / "runtimes" / f"{name}_runtime.py").write_text(runtime)
    kernel_log = (cell / "failures" / "kernel_log.py").read_text()
    assert 'Path("/dev/kmsg")' in kernel_log
    kernel_log = kernel_log.replace("/dev/kmsg", str(folder / "kmsg"))
    (cell / "failures" / "kernel_log.py").write_text(kernel_log)
    contender = (cell / "contender.py").read_text()
    for stage in ("block", "evidence", "latency"):
        line = f'self._stage = "{stage}"\n'
        assert line in contender
        contender = contender.replace(line, line[:-1] + f'; _shake("{stage}")\n')
    line = "            self.program = bind_program("
    assert line in contender
    contender = contender.replace(line, '            _shake("build", case.precision)\n' + line)
    line = "        readings = {"
    assert line in contender
    contender = contender.replace(line, '        _shake("finish")\n' + line)
    contender += """

def _shake(stage, precision=None):
    from benchcore import shaky
    shaky.PRECISION = precision or shaky.PRECISION
    shaky.shake(stage)
"""
    (cell / "contender.py").write_text(contender)


def _order(**changes: Any) -> DuelOrder:
    jax = make_contender("jax", framework="jax", version="0.10.1", arm="jax-jit")
    limits = {"workload": "shaky", "case": "bare", "rounds": 2, "device": "cuda:0"}
    return make_order(jax, make_contender("bare"), **{**limits, **changes})


def _run(folder: Path, order: DuelOrder) -> dict[str, Any]:
    """The document, with `launches`: the XLA flags of every process of the fake JAX, in order; of
    those that only dump, in `dumps`."""
    state = open_state(folder / "state")
    document = run_order(order, state, folder / "snapshot")
    launches = (folder / "launches").read_text().splitlines()
    dumps = folder / "launches.dumps"
    return {
        **document,
        "launches": launches,
        "dumps": dumps.read_text().splitlines() if dumps.exists() else [],
        "jax": document["contenders"][0],
    }


def test_a_crash_is_avoided_by_the_narrowest_workaround_and_reported(folder: Path) -> None:
    _prepare(folder, Shake())
    found = _run(folder, _order())
    jax, bare = found["contenders"]
    assert (bare["status"], jax["status"]) == ("ok", "workaround")
    assert jax["failure"]["reason"].startswith(f"workaround 3 ({FLAG}) helped after: ")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in jax["failure"]["reason"]
    assert (jax["failure"]["stage"], jax["failure"]["start"]) == ("build", 0)
    assert [(start["index"], start["status"]) for start in jax["starts"]] == [
        (0, "workaround"),
        (1, "workaround"),
    ]
    assert all(len(start["blocks"]) >= 2 for start in jax["starts"])
    # Clean, a plain retry, the flag: start 0, start 1, and the pass for memory.
    assert found["launches"] == ["", "", FLAG, FLAG, FLAG]
    tried = [
        (each["workaround"], each["flags"], each["status"], each["cause"])
        for each in jax["ladder"]["attempts"]
    ]
    assert tried == [(1, [], "crash", "illegal_address"), (3, [FLAG], "ok", None)]
    assert (jax["ladder"]["helped"], jax["ladder"]["highest"]) == (3, None)
    assert bare["ladder"] is None
    assert "failed_passes" not in jax["effective"]


@pytest.mark.parametrize(
    ("stage", "reported"),
    [("evidence", "evidence"), ("block", "block"), ("latency", "latency"), ("finish", "evidence")],
)
def test_a_crash_at_any_time_is_retried_and_nothing_is_pooled(
    folder: Path, stage: str, reported: str
) -> None:
    """Evidence is taken in start 0; the others go wrong only in start 1."""
    start = 0 if stage == "evidence" else 1
    _prepare(folder, Shake(stage=stage, when=f"LAUNCH > {start}"))
    found = _run(folder, _order())
    jax, bare = found["contenders"]
    assert (bare["status"], jax["status"]) == ("ok", "workaround")
    assert (jax["failure"]["stage"], jax["failure"]["start"]) == (reported, start)
    assert [each["index"] for each in jax["starts"]] == [0, 1]
    assert {each["status"] for each in jax["starts"]} == {"workaround"}
    for each in jax["starts"]:
        assert len(each["blocks"]) >= 2
        assert each["latency_ns"]
    # Neither start is of a process without the flag, though one without it went well before.
    clean, retried = [""] * (start + 1), [""]
    assert found["launches"] == [*clean, *retried, FLAG, FLAG, FLAG]
    # It was compared again: without the flag it computes another value.
    assert [(row["agrees"], row["max_relative"]) for row in found["equivalence"]] == [(True, 0.0)]


def test_every_pass_runs_with_the_contenders_workaround(folder: Path) -> None:
    """Memory and profile share a process; energy has one of its own, where the GPU counts it."""
    _prepare(folder, Shake())
    add_gpus(folder / "snapshot", 1, energy="__import__('time').monotonic_ns() // 10_000")
    passes = folder / "snapshot" / "benchcore" / "cell" / "measure" / "resource_passes.py"
    shorter = passes.read_text()
    for line in ("IDLE_S = 2.0", "SETTLE_S = 1.0", "WINDOW_S = 5.0"):
        assert line in shorter
        shorter = shorter.replace(line, line.partition("=")[0] + "= 0.1")
    passes.write_text(shorter)
    found = _run(folder, _order(starts=1))
    assert found["jax"]["status"] == "workaround"
    assert "failed_passes" not in found["jax"]["effective"]
    assert found["jax"]["starts"][-1]["energy"]["gross_mj"] > 0
    assert found["launches"] == ["", "", FLAG, FLAG, FLAG]


def test_without_the_workaround_the_value_would_not_have_agreed(folder: Path) -> None:
    _prepare(folder, Shake(when="False"))
    found = _run(folder, _order())
    assert [each["status"] for each in found["contenders"]] == ["ok", "ok"]
    assert [row["agrees"] for row in found["equivalence"]] == [False]


@pytest.mark.parametrize(
    ("when", "without", "start"),
    [("LAUNCH % 2 == 1", 3, 0), ("LAUNCH % 2 == 0", 4, 1)],
    ids=["in a later start", "while it plays again"],
)
def test_a_crash_under_a_workaround_continues_with_the_next(
    folder: Path, when: str, without: int, start: int
) -> None:
    _prepare(folder, Shake(stage="block", when=when))
    found = _run(folder, _order())
    assert found["jax"]["failure"]["reason"].startswith("workaround 3 (")
    ends = [(each["workaround"], each["status"]) for each in found["jax"]["ladder"]["attempts"]]
    assert ends == [(1, "crash"), (3, "ok")]
    assert found["launches"] == [*[""] * without, FLAG, FLAG, FLAG]
    assert found["jax"]["failure"]["start"] == start


def test_measurements_survive_a_crash_that_no_workaround_avoids(folder: Path) -> None:
    shake = Shake(stage="block", when="LAUNCH > 1", flag="--no-such-flag")
    _prepare(folder, shake)
    found = _run(folder, _order())
    jax = found["jax"]
    assert (jax["status"], "ILLEGAL_ADDRESS" in jax["failure"]["reason"]) == ("crash", True)
    assert jax["failure"]["start"] == 1
    assert [(s["status"], len(s["blocks"]) >= 2) for s in jax["starts"]] == [
        ("ok", True),
        ("crash", False),
    ]
    assert len([flags for flags in found["launches"] if flags]) == 3
    assert [each["status"] for each in jax["ladder"]["attempts"]] == ["crash"] * 4
    assert jax["ladder"]["helped"] is None
    assert found["equivalence"] == []


def test_failures_other_than_autotuner_crashes_are_not_retried(folder: Path) -> None:
    _prepare(folder, Shake(how='raise RuntimeError("RESOURCE_EXHAUSTED: no room")'))
    found = _run(folder, _order())
    assert (found["jax"]["status"], found["jax"]["starts"][0]["status"]) == ("oom", "oom")
    assert found["launches"] == [""]


def test_a_segfault_on_a_cpu_is_retried_once_and_tries_no_flag_of_a_gpu(folder: Path) -> None:
    _prepare(folder, Shake(how="ctypes.string_at(0)"))
    found = _run(folder, _order(device="cpu"))
    assert found["jax"]["status"] == "crash"
    assert "SIGSEGV" in found["jax"]["failure"]["reason"]
    assert found["launches"] == ["", ""]
    assert found["jax"]["ladder"]["hlo"] is None


def test_a_segfault_on_a_gpu_is_retried(folder: Path) -> None:
    _prepare(folder, Shake(how="ctypes.string_at(0)"))
    jax = _run(folder, _order())["jax"]
    assert (jax["status"], "SIGSEGV" in jax["failure"]["reason"]) == ("workaround", True)


def test_every_duel_starts_without_a_workaround_and_with_the_flags_of_its_arm(
    folder: Path,
) -> None:
    _prepare(folder, Shake())
    settings = {"compile": "none", "command_buffers": "off"}
    jax = make_contender("jax", framework="jax", version="0.10.1", settings=settings)
    own = "--xla_gpu_enable_command_buffer="
    order = dataclasses.replace(_order(starts=1), contenders=(jax,))
    first = _run(folder, order)["launches"]
    assert first == [own, own, f"{own} {FLAG}", f"{own} {FLAG}"]
    again = dataclasses.replace(order, duel_run="f" * 16)
    assert _run(folder, again)["launches"][len(first) :] == first


@pytest.mark.parametrize(
    ("pci", "number", "reported", "status", "cause"),
    [
        ("0000:00:00", 31, [31], "workaround", "signal"),
        ("0000:00:00", 79, [79], "crash", "hardware"),
        ("0000:01:00", 79, [], "workaround", "signal"),
    ],
    ids=["a page fault", "off the bus", "another GPU"],
)
def test_kernel_faults_are_reported_and_a_broken_gpu_is_not_retried(
    folder: Path, pci: str, number: int, reported: list[int], status: str, cause: str
) -> None:
    (folder / "kmsg").touch()
    line = f"3,9,9,-;NVRM: Xid (PCI:{pci}): {number}, pid=1, name=python3\\n"
    _prepare(
        folder, Shake(how=f"""open({str(folder / "kmsg")!r}, "a").write("{line}"); os.abort()""")
    )
    jax = _run(folder, _order(starts=1))["jax"]
    assert (jax["status"], jax["failure"]["cause"]) == (status, cause)
    assert [each["number"] for each in jax["failure"]["xids"]] == reported


def test_a_kernel_log_that_cannot_be_read_is_null(folder: Path) -> None:
    _prepare(folder, Shake())
    failure = _run(folder, _order(starts=1))["jax"]["failure"]
    assert (failure["cause"], failure["xids"]) == ("illegal_address", None)


LAST = "--xla_gpu_autotune_level=0"


@pytest.mark.parametrize(
    ("when", "highest"),
    [("PRECISION == 'tf32'", ("ok", None)), ("True", ("crash", "illegal_address"))],
    ids=["tf32 alone crashes", "every precision crashes"],
)
def test_precision_highest_is_tried_before_the_last_workaround_as_advice(
    folder: Path, when: str, highest: tuple[str, str | None]
) -> None:
    """It is a different case: what it computed takes no part, and the ladder goes on."""
    _prepare(folder, Shake(when=when, flag=LAST, precision="tf32"))
    found = _run(folder, _order(starts=1))
    jax = found["jax"]
    assert (jax["ladder"]["highest"]["status"], jax["ladder"]["highest"]["cause"]) == highest
    assert (jax["status"], jax["ladder"]["helped"], len(jax["starts"])) == ("workaround", 5, 1)
    # Clean, four workarounds but the one that this XLA does not know, highest, the last workaround.
    assert [flags.count("=") for flags in found["launches"]] == [0, 0, 1, 1, 0, 1, 1]
    assert [each["agrees"] for each in found["equivalence"]] == [True]


@pytest.mark.parametrize(("precision", "flag"), [("fp32_ieee", LAST), ("tf32", FLAG)])
def test_highest_is_not_tried_if_in_force_or_a_narrower_workaround_helped(
    folder: Path, precision: str, flag: str
) -> None:
    _prepare(folder, Shake(flag=flag, precision=precision))
    ladder_of_jax = _run(folder, _order(starts=1))["jax"]["ladder"]
    assert (ladder_of_jax["helped"] is not None, ladder_of_jax["highest"]) == (True, None)


_BEFORE, _AFTER = ".before_optimizations.txt", ".sm_90_gpu_after_optimizations.txt"


def test_the_hlo_of_a_crash_is_stored_with_the_command_that_runs_it(folder: Path) -> None:
    dumps = {
        f"module_0001.jit_put{_BEFORE}": 10,
        f"module_0001.jit_put{_AFTER}": 20,
        f"module_0002.jit_step{_BEFORE}": 30,
        "module_0002.jit_step.ptx": 40,
    }
    _prepare(folder, Shake(dumps=dumps))
    settings = {"compile": "none", "command_buffers": "off"}
    jax = make_contender("jax", framework="jax", version="0.10.1", settings=settings)
    order = dataclasses.replace(_order(starts=1), contenders=(jax,))
    found = _run(folder, order)
    kept = found["jax"]["ladder"]["hlo"]
    assert found["jax"]["status"] == "workaround"
    names = sorted(name for name in dumps if name.endswith(".txt"))
    assert (kept["files"], kept["bytes"], kept["left_out"]) == (names, 60, 0)
    lies = folder / "state" / "campaigns" / "test" / "duels" / order.duel_run / kept["folder"]
    assert sorted(file.name for file in lies.iterdir()) == names
    assert kept["crashed_again"]
    assert kept["command"] == (
        "XLA_FLAGS=--xla_gpu_enable_command_buffer= run_hlo_module --platform=CUDA "
        f"--reference_platform= module_0002.jit_step{_BEFORE}"
    )
    (dump,) = found["dumps"]
    assert "--xla_dump_hlo_as_text" in dump
    assert not Path(dump.partition("--xla_dump_to=")[2].partition(" ")[0]).exists()

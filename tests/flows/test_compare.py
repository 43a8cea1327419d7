"""`deadheat compare`: the verdict in words, and two real comparisons."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended, run_here
from comparison_findings import FOUND
from result_documents import spool_ceiling
from typer.testing import CliRunner

from benchcore.protocol import EnvironmentRecord
from benchcore.state import State
from benchcore.workloads.settings import JAX_OPTIONS, TORCH_COMPILE, TORCH_IMAGE_OPTIONS
from dashboards.listings.answer import format_physics, format_scope, format_verdict
from flows.cli.compare import print_comparison
from flows.cli.main import app

DEADHEAT = str(Path(sys.executable).parent / "deadheat")
pytestmark = pytest.mark.usefixtures("prefect_api", "short_blocks", "forked_contenders")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "a is 1.33x (1.30 to 1.36) as fast as b"),
        ({"speedup": 0.8, "low": 0.78, "high": 0.82}, "b is 1.25x (1.22 to 1.28) as fast as a"),
        (
            {"speedup": 1.0, "low": 0.99, "high": 1.01, "verdict": "same"},
            "a and b are equally fast: 1.00x (0.99 to 1.01)",
        ),
        (
            {"verdict": "unknown", "reason": "it is wide"},
            "which of a and b is faster is unknown: measured a 1.33x (1.30 to 1.36) as fast as b; "
            "it is wide",
        ),
        (
            {"verdict": "unknown", "speedup": None, "reason": "no round that both finished"},
            "which of a and b is faster is unknown: no round that both finished",
        ),
    ],
)
def test_each_verdict_has_its_sentence(changes: dict[str, Any], words: str) -> None:
    assert format_verdict({**FOUND, **changes}) == words


def test_a_verdict_names_its_scope_and_one_start_has_none() -> None:
    assert format_scope(FOUND) == (
        "this node, over 5 compilations (n1, Some CPU); 5 starts, until the interval was narrow "
        "enough; 95 % interval"
    )
    assert format_scope({**FOUND, "scope": "this start"}) == (
        "a single start, no interval. One start gives no verdict: run more starts"
    )
    none = format_scope({**FOUND, "scope": "this start", "num_starts": 0})
    assert none == "nothing: no start gave a ratio"


def _found(**changes: Any) -> dict[str, Any]:
    side = {
        "name": "jax-jit",
        "framework": "jax",
        "status": "ok",
        "median_step_ns": 1.5e6,
        "limit_share": None,
    }
    side["settings"] = {"compile": "jit"}
    sides = {"a": side, "b": {**side, "name": "torch-eager", "median_step_ns": None}}
    rest = {"case": "mlp tiny", "outputs_agree": None, "outputs": [], "differences": [], "why": []}
    rest["checkpoint"] = None
    rest["program"] = {"same": True, "summary": "same program (dddddddddddd)"}
    return {**FOUND, **sides, **rest, **changes}


def _print(capsys: pytest.CaptureFixture[str], found: dict[str, Any]) -> str:
    print_comparison(found, {"failures": [], "dashboard": "page", "notes": ["a caveat"]})
    return capsys.readouterr().out


def test_each_sides_step_is_reported_and_a_missing_one_is_not_zero(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = _print(capsys, _found())
    assert "a: jax-jit (compile=jit), 1.50 ms per step\nb: torch-eager (compile=jit), no" in printed
    assert "Program: same program (dddddddddddd).\n" in printed


def test_the_shared_weights_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    weights = f"Weights of both: the checkpoint with SHA-256 {'c' * 64}.\n"
    assert weights in _print(capsys, _found(checkpoint="c" * 64))
    assert "Weights" not in _print(capsys, _found())


def test_the_bottleneck_of_each_side_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shares = {"compute_share": 0.6, "bandwidth_share": None, "host_share": 0.08}
    words = {"bottleneck": "sync", "reason": "[of] a step: 60 %", "advice": "less arithmetic"}
    row = {"case": "mlp tiny", "name": "jax-jit", "intensity": 91.34, "ridge": 20.0}
    printed = _print(capsys, _found(why=[{**row, **shares, **words}]))
    for text in ("sync", "91.3 (20)", "60 %", "8 %", "not measured", "[of] a step", "less arit"):
        assert text in printed


def test_what_only_one_framework_can_be_asked_is_no_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        {"kind": "effective", "name": name, "a": a, "b": b}
        for name, a, b in (("cudnn_benchmark", None, False), ("manifest.layout", "NHWC", "NCHW"))
    ]
    found = _found(differences=rows)
    found["a"]["framework"], found["b"]["framework"] = "jax", "torch"
    printed = _print(capsys, found)
    assert "layout" in printed and "cudnn benchmark" not in printed
    found["a"]["framework"] = "torch"
    rows.append({"kind": "effective", "name": "manifest.owed", "a": "all but 1", "b": "all"})
    printed = _print(capsys, found)
    assert "cudnn benchmark" in printed and "results that a step returns" in printed


def test_outputs_without_any_difference_are_called_identical(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        {"quantity": name, "max_relative": far, "tolerance": 1e-5}
        for name, far in (("logits", 0.0), ("loss", 2e-7))
    ]
    printed = _print(capsys, _found(outputs=rows, outputs_agree=True))
    assert "agree: logits identical (tolerance 1.0e-05), loss within 2.0e-07 (tol" in printed


def test_a_disturbed_machine_is_reported_with_advice(capsys: pytest.CaptureFixture[str]) -> None:
    words = "The machine was disturbed meanwhile: repeat the comparison when it is quiet."
    reason = "no valid block; 4 of 4 blocks left out as degraded"
    assert words in _print(capsys, _found(verdict="unknown", reason=reason))
    assert words not in _print(capsys, _found(verdict="unknown", reason="it is wide"))
    assert words not in _print(capsys, _found(reason=f"excludes none; {reason}"))


def test_a_missing_roofline_check_is_reported() -> None:
    found = _found()
    assert format_physics(found).startswith("Physics: not judged, as a step or the ceilings")
    for side, share in (("a", 0.0), ("b", 0.4)):
        found = {**found, side: {**found[side], "limit_share": share}}
    assert (
        format_physics(found) == "Physics: the fastest step reaches 40 % of what the device allows."
    )


def _compare(state: State, *arguments: str, case: str = "mlp --case tiny_infer") -> Ended:
    command = ("compare", *case.split(), "--budget", "0", *arguments)
    return run_here(*command, "--state", str(state.root))


def _run(state: State, *command: str) -> str:
    given = [*command, "--state", str(state.root)]
    done = CliRunner().invoke(app, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.provisions
def test_a_contender_can_be_compared_with_itself(
    session_state: State, framework_environment: Callable[[str], EnvironmentRecord]
) -> None:
    framework_environment("jax")
    spool_ceiling(session_state)
    short = ("--starts", "3", "--no-ceilings", "--json")
    done = _compare(session_state, "--a", "jax", "--b", "jax", *short)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if found["low"] is not None and found["verdict"] != "same":  # one in twenty is a false alarm
        covers = found["low"] <= 1 <= found["high"]
        assert found["verdict"] == ("unknown" if covers else "different")
    if "degraded" not in found["reason"]:  # by other users of this machine
        scope = "this node, over 3 compilations"
        assert (found["num_starts"], found["scope"], found["counts"]) == (3, scope, True)
    assert (found["outputs_agree"], found["differences"]) == (True, [])
    assert found["b"]["name"] == f"{found['a']['name']}.twin2"


@pytest.mark.provisions
def test_a_missing_device_is_reported_in_every_command(
    session_state: State, framework_environment: Callable[[str], EnvironmentRecord]
) -> None:
    for request in ("jax", "torch"):
        framework_environment(request)
    done = _compare(session_state, "--a", "jax", "--b", "torch", "--device", "cuda:99", "--json")
    assert done.returncode == 1, done.stderr
    assert "proving" not in done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["counts"], found["num_starts"]) == ("unknown", False, 0)
    assert [found[side]["status"] for side in ("a", "b")] == ["unsupported", "unsupported"]
    assert "wanted device 'cuda:99', but there is none here" in found["reason"]
    site = Path(found["dashboard"]).parents[1]
    page = (site / "data" / "campaigns" / f"{found['campaign']}.js").read_text()
    for failure in found["failures"]:
        assert (failure["status"], failure["stage"]) == ("unsupported", "init")
        assert failure["reason"].startswith("wanted device 'cuda:99', but there is none here (")
        assert failure["name"] in page
    assert '"unsupported"' in page
    assert "there is none here (" in page
    marks = json.loads(_run(session_state, "check", found["campaign"], "--json"))["failed_checks"]
    finished = [mark for mark in marks if mark["expectation"] == "finished"]
    names = {each["name"] for each in found["failures"]}
    assert {mark["contender"] for mark in finished} == names
    assert names > {found[side]["name"] for side in ("a", "b")}  # the ceilings' own ran nowhere
    ended = "it is not supported in stage init: "
    assert all(mark["reason"].startswith(ended) for mark in finished)
    printed = _run(session_state, "report", found["campaign"])
    assert "Failed contenders" in printed
    assert len(found["failures"]) == 6
    assert printed.count("unsupported") == 2 * 6  # the status, and its cause in a word


@pytest.mark.provisions
@pytest.mark.parametrize(
    ("case", "framework", "settings", "rows"),
    [
        (
            "mlp --case tiny_infer",
            "torch",
            "--a-set compile=reduce-overhead --b-set compile=none",
            ["setting │ compile │ reduce-overhead │ none", "read back │ compiled │ yes │ no"],
        ),
        (
            "mlp --case tiny_train",
            "jax",
            "--b-set donate=no --no-ceilings",
            ["setting │ donate │ not set │ no", "read back │ state update │ in place │ copied"],
        ),
        (
            "mobilenet_v3_small --case tiny_infer",
            "torch",
            "--a-set compile=none --a-set layout=channels_last --b-set compile=none --no-ceilings",
            ["setting │ layout │ channels_last │ not set", "read back │ layout │ NHWC │ NCHW"],
        ),
    ],
)
def test_two_settings_of_one_version_are_compared_with_their_differences(
    session_state: State,
    framework_environment: Callable[[str], EnvironmentRecord],
    case: str,
    framework: str,
    settings: str,
    rows: list[str],
) -> None:
    framework_environment(framework)
    spool_ceiling(session_state)
    sides = ("--a", framework, "--b", framework, *settings.split(), "--starts", "2")
    sides += ("--max-starts", "4", "--compilations", "1")
    done = _compare(session_state, *sides, case=case)
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.split())
    assert f"On {case.replace('--case ', '')}, " in printed
    assert "as fast as" in printed or "degraded" in printed
    assert "Outputs agree: " in printed
    assert "Physics: the fastest step reaches " in printed or "degraded" in printed
    assert "Holds for this node" in printed or "degraded" in printed
    for row in rows:
        assert row in printed, printed
    # Only requested settings differ, and no fact is printed twice.
    assert printed.count("read back") == printed.count("setting │") + printed.count("compile mode")


def test_the_help_names_every_setting_that_an_arm_has() -> None:
    done = subprocess.run(
        [DEADHEAT, "compare", "--help"],
        env={**os.environ, "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=True,
    )
    printed = "".join(done.stdout.split())  # the help breaks lines within a value, at its hyphens
    for options in (JAX_OPTIONS, TORCH_IMAGE_OPTIONS):
        for key, values in options.items():
            assert f"{key}={'|'.join(values)}" in printed
    assert f"compile={'|'.join(TORCH_COMPILE)}" in printed

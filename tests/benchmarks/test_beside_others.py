"""Our duels beside other tools: what is compared, and the arithmetic of the table."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import beside_others
import beside_worker
import numpy as np
import pytest
from beside_asv import Asv, ToolFailedError, read_median, run
from beside_others import (
    count_decisions,
    decide_by_welch,
    list_turns,
    pool_spread,
    show,
    summarise,
)
from beside_worker import make_digest, run_loop


def _row(more: bool, log_ratio: float | None, called: bool) -> dict[str, Any]:
    return {
        "function": "digest",
        "tool": "plain loop",
        "more": more,
        "s": 2.0,
        "log_ratio": log_ratio,
        "called": {"t": called},
    }


def test_a_row_counts_false_alarms_and_what_is_found_with_the_right_sign() -> None:
    same = [_row(False, 0.01, True), _row(False, -0.01, False), _row(False, None, False)]
    more = [_row(True, 0.04, True), _row(True, 0.02, False), _row(True, -0.03, True)]
    (row,) = summarise([*same, *more])
    assert row["different"] == [1, 3]
    assert row["found"] == [1, 3]
    assert row["measured"] == pytest.approx(math.expm1(0.02))
    assert row["until_s"] == 2.0 * count_decisions(row["spread"])
    assert "| digest | plain loop | 2.0 |" in show([row])
    assert "| t | 1 of 3 | 1 of 3 |" in show([row])


def test_the_shift_between_two_groups_is_no_spread() -> None:
    assert pool_spread([[0.0, 0.02], [1.0, 1.02]]) == pytest.approx(math.sqrt(2) * 0.01)
    assert pool_spread([[0.5], []]) is None


@pytest.mark.parametrize("spread", [0.005, 0.02, 0.05])
def test_so_many_decisions_find_three_percent_with_95_percent_power(spread: float) -> None:
    def power(count: int) -> float:
        means = rng.normal(math.log1p(0.03), spread, (4000, count)).mean(axis=1)
        return float(np.mean(means > 1.96 * spread / math.sqrt(count)))

    rng = np.random.default_rng(1)
    count = count_decisions(spread)
    assert power(count) >= 0.94
    assert count == 1 or power(count - 1) < 0.955


def test_where_a_tool_has_no_rule_its_steps_are_the_samples() -> None:
    base = {"mean": 1.0, "sd": 0.01, "count": 100}
    near, far = ({**base, "mean": mean} for mean in (1.001, 1.01))
    assert list(decide_by_welch(base, near).called.values()) == [False]
    found = decide_by_welch(base, far)
    assert list(found.called.values()) == [True]
    assert found.log_ratio == pytest.approx(math.log(1.01))


def test_the_work_grows_with_the_rows() -> None:
    for rows in (100, 103):
        assert make_digest(rows)() == hashlib.sha256(bytes(1000 * rows)).digest()
    found = run_loop("digest", 100, 0.05)
    assert found["mean"] * found["count"] >= 0.0499  # a busy machine takes longer
    assert found["count"] > 1


@pytest.mark.parametrize(
    ("seconds", "digests", "encoders"), [(120.0, range(4), [0, 3]), (100.0, range(6), [0])]
)
def test_no_turn_begins_that_would_end_too_late(
    monkeypatch: pytest.MonkeyPatch, seconds: float, digests: range, encoders: list[int]
) -> None:
    clock = 0.0
    monkeypatch.setattr(beside_others, "time", SimpleNamespace(monotonic=lambda: clock))
    turns: dict[str, list[int]] = {"digest": [], "encoder": []}
    for number, function in list_turns(list(turns), 9, seconds):
        turns[function].append(number)
        clock += {"digest": 10.0, "encoder": 35.0}[function]
    assert turns == {"digest": list(digests), "encoder": encoders}


def test_asv_takes_no_function_of_the_worker_for_a_benchmark() -> None:
    names = re.compile(r"(time|timeraw|mem|peakmem|track)_|(Time|Timeraw|Mem|PeakMem|Track)[A-Z_]")
    assert not [name for name in vars(beside_worker) if names.match(name)]


def _answer(folder: Path, medians: list[float], mark: str) -> Any:
    """As asv answers, without it."""

    def answer(_asv: Asv, *arguments: str, codes: object = ()) -> str:
        if arguments[0] != "continuous":
            return ""
        for commit, median in zip(arguments[-2:], medians, strict=True):
            path = folder / "results" / "here" / f"{commit[:8]}-virtualenv-py3.13.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            stored = {"result_columns": ["result", "params"], "results": {"t": [[median], []]}}
            path.write_text(json.dumps(stored))
        return f"| Change | Before |\n|----|----|\n| {mark} | 1.00ms | 1.03ms |\n"

    return answer


@pytest.mark.parametrize(("mark", "differs"), [("+", True), ("-", True), (" ", False)])
def test_asv_compares_the_same_work_and_three_percent_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, differs: bool
) -> None:
    folder = tmp_path / "asv"
    monkeypatch.setattr(Asv, "_asv", _answer(folder, [1.0, 1.03], mark))
    asv = Asv(sys.executable, "digest", folder)
    log = ["git", "log", "--reverse", "--format=%H"]
    commits = subprocess.run(log, cwd=folder, capture_output=True, text=True, check=True)
    rows = [
        subprocess.run(
            ["git", "show", f"{commit}:rows.py"],
            cwd=folder, capture_output=True, text=True, check=True,
        ).stdout
        for commit in commits.stdout.split()
    ]  # fmt: skip
    assert [text.split() for text in rows] == [
        ["ROWS", "=", each] for each in ("100", "100", "103")
    ]
    assert len({len(text) for text in rows}) == 3, "bytecode of another commit could be used"
    assert asv.compare(more=True) == (pytest.approx(math.log(1.03)), differs)
    assert os.environ.get("HOME") != str(folder)


def test_asvs_environment_finds_our_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, packages = tmp_path / "asv", sysconfig.get_path("purelib")
    monkeypatch.setattr(Asv, "_asv", lambda _asv, *arguments, codes=(): "")
    Asv(sys.executable, "encoder", folder)
    (command,) = json.loads((folder / "asv.conf.json").read_text())["install_command"]
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.chdir(folder)
    exec(shlex.split(command)[-1], {})
    assert (tmp_path / "packages.pth").read_text() == packages
    assert (tmp_path / "rows.py").read_text() == (folder / "rows.py").read_text()


def test_a_benchmark_that_failed_in_asv_is_no_time(tmp_path: Path) -> None:
    path = tmp_path / "here" / "12345678-env.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"result_columns": ["result"], "results": {"t": [None]}}))
    with pytest.raises(ToolFailedError, match="wanted asv's result of 12345678, got none: the log"):
        read_median(tmp_path, "1234567890", "the log")


def test_what_a_tool_printed_before_it_failed_is_in_the_error(tmp_path: Path) -> None:
    script = "import sys; print(end='found 2'); sys.stderr.write('no model'); sys.exit(3)"
    with pytest.raises(ToolFailedError, match="exit code 3: found 2no model"):
        run([sys.executable, "-c", script], tmp_path, os.environ)
    assert (
        run([sys.executable, "-c", script], tmp_path, os.environ, codes=(0, 3)).stdout == "found 2"
    )

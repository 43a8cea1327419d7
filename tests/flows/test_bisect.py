"""`deadheat bisect`: a slow JAX among others is found by real starts, and named."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from slow_environments import make_slow
from typer.testing import CliRunner

from benchcore.errors import UserError
from benchcore.protocol import EnvironmentRecord, write_json
from flows.cli import app

ASKED = ["bisect", "jax", "--workload", "matmul", "--case", "tiny_op", "--json"]
VERSIONS = ("1.0", "1.1", "1.2")
PUBLISHED = """
import json, sys
from pathlib import Path
from benchcore import campaign
from benchcore.bisection import Candidates
from benchcore.protocol import EnvironmentRecord
from benchcore.releases import Release
from flows import bisect, cli

built = json.loads(Path(sys.argv.pop(1)).read_text())
environments = {version: EnvironmentRecord(**each) for version, each in built.items()}

def resolve(request, *given, **named):
    record = environments[str(request.version)]
    fixed = {"framework": "jax", "version": str(request.version), "role": "pinned"}
    return Release(**fixed, python=Path(record.python), python_version=record.python_version)

campaign.resolve = resolve
campaign.provision = lambda release, *given, **named: environments[release.version]
bisect.find_candidates = lambda *given: Candidates(versions=tuple(environments), python="3")
cli.main()
"""
"""The command line, where the index has versions of ours, each with its environment."""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["--good", "1", "--bad", "nonsense"], "wanted a version such as"),
        (["--good", "2.0", "--bad", "1.0"], "wanted a good version that is older"),
        (["--good", "1.0", "--bad", "2.0", "--starts", "1"], "wanted numbers of starts from 2"),
        (["--good", "1.0", "--bad", "2.0", "--case", "none"], "no case 'none'"),
        (["--good", "1.0", "--bad", "2.0", "--device", "abacus"], "no device 'abacus'"),
        (["--good", "1.0", "--bad", "2.0", "--event", "7"], "no event 7"),
    ],
)
def test_bad_input_is_told_before_anything_is_measured(
    changes: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    result = CliRunner().invoke(app, [*ASKED, *changes, "--state", str(tmp_path)])
    assert isinstance(result.exception, UserError)
    assert words in str(result.exception)
    assert not list(tmp_path.glob("campaigns/*"))


@pytest.mark.provisions
def test_the_version_that_is_slower_is_found_by_real_starts(
    framework_environment: Callable[[str], EnvironmentRecord], tmp_path: Path, prefect_api: None
) -> None:
    """Of three versions, the last of which does its work a hundred times over."""
    real = framework_environment("jax")
    slow = str(make_slow(tmp_path / "slow", Path(real.python), "jax"))
    built = {
        each: replace(real, key=each, python=slow if each == "1.2" else real.python)
        for each in VERSIONS
    }
    listed = tmp_path / "built.json"
    write_json(listed, {each: dataclasses.asdict(record) for each, record in built.items()})
    (tmp_path / "published.py").write_text(PUBLISHED)
    environ = {**os.environ, "DEADHEAT_STATE": str(tmp_path / "state")}
    environ.pop("DEADHEAT_DATABASE_URL", None)
    # Few starts, so that a wide bound is what they can show.
    more = ["--good", "1.0", "--bad", "1.2", "--starts", "3", "--bound", "0.5", "--profile", "ci"]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "published.py"), str(listed), *ASKED, *more],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    asked = [(each["purpose"], each["old"], each["new"], each["verdict"]) for each in told["steps"]]
    assert json.loads(Path(told["record"]).read_text())["words"] == told["words"]
    if told["verdict"] == "unknown":
        assert (done.returncode, told["culprits"]) == (1, [])
        pytest.skip(f"others used this machine: {told['reason']}")
    assert done.returncode == 0, done.stderr
    (culprit,) = told["culprits"]
    assert culprit["version"] == "1.2"
    assert culprit["low"] > 1.5
    assert told["words"].startswith("1.2 takes ")
    assert asked[0] == ("ends", "1.0", "1.2", "different")
    if culprit["untold"]:  # others used this machine when it was the middle's turn
        assert (culprit["before"], culprit["untold"]) == ("1.0", ["1.1"])
    else:
        assert culprit["before"] == "1.1"
        assert asked[1:] == [
            ("search", "1.0", "1.1", "same"),
            ("verify", "1.1", "1.2", "different"),
        ]

"""A night in which nothing counts prints why, before all else, and ends with exit code 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli import nightly
from flows.cli.main import app

BUSY = "Nothing counts: the machine was busy. Other processes used 38 to 62 % of its CPUs."


@pytest.mark.parametrize(("void", "code"), [(BUSY, 1), (None, 0)])
def test_the_reason_comes_first_and_decides_the_exit_code(
    void: str | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = {"void": void, "notes": [], "ratios": [], "failures": [], "campaign": "night"}
    outcome["dashboard"] = "index.html"

    def run(*_: Any) -> dict[str, Any]:
        return outcome

    monkeypatch.setattr(nightly, "run_flow", run)
    command = ["nightly", "--profile", "smoke", "--state", str(tmp_path)]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == code
    assert done.stdout.startswith(BUSY) == (void is not None)
    done = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    assert (done.exit_code, json.loads(done.stdout)["void"]) == (code, void)

"""The README: short, its commands real, its links alive."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from image_folders import write_digits
from safetensors.numpy import save_file
from typer.testing import CliRunner

from benchcore.catalog import load_spec
from flows.cli import app

ROOT = Path(__file__).parent.parent
READMES = [ROOT / "README.md", *sorted(ROOT.glob("*/README.md"))]
COMMANDS = re.findall(r"^\.venv/bin/deadheat (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_the_readme_is_short_and_runs_early() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert any(line.startswith("make nightly") for line in lines[:25])
    for readme in READMES[1:]:
        assert len(readme.read_text().splitlines()) <= 40, readme


PAGES = [
    *READMES,
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "benchcore").rglob("*.md")),
]


@pytest.mark.parametrize("readme", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(readme: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", readme.read_text()):
        if not target.startswith(("http", "#")):
            assert (readme.parent / target).exists(), target


@pytest.mark.parametrize("command", COMMANDS)
def test_what_the_readme_says_to_run_can_be_planned(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the point where measuring would begin."""
    assert len(COMMANDS) >= 2
    planned: list[str] = []

    def stop(run: object, state: object, name: str) -> None:
        planned.append(name)
        raise typer.Exit

    monkeypatch.setattr(
        "flows.cli._run_flow", lambda run, state, name, as_json: planned.append(name)
    )
    for module in ("compare", "defects", "waterfall", "train"):
        monkeypatch.setattr(f"flows.{module}.run_flow", stop)
    write_digits(tmp_path / "imagenet-100", train=16, val=1, classes=2)
    spec = load_spec("mobilenet_v3_small")
    weights = spec.make_arrays(spec.CASES["tiny_infer"], 0).params
    save_file(dict(weights), tmp_path / "mobilenet.safetensors")
    monkeypatch.chdir(tmp_path)
    arguments = [*shlex.split(command), "--state", str(tmp_path)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "campaigns" / planned[0] / "plan.json").exists()

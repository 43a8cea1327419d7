"""Every command that measures can be given a pool of its site."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchcore.errors import UserError
from benchcore.planning.matrix import Plan
from flows.cli.main import app

EMPTY = Plan(
    schema=1, campaign="asked", profile="p", site="slurm-local", releases={}, duels=(), notes=()
)


@pytest.mark.parametrize(
    ("module", "draft", "arguments"),
    [
        ("compare", "draft_comparison", "mlp --case tiny_infer --a jax --b torch"),
        ("defects", "draft_study", "mlp --case tiny_infer"),
        ("train", "draft_training", "resnet50 --dataset nowhere --a jax --b torch"),
        ("waterfall", "draft_waterfall", "resnet50 --case tiny_infer"),
    ],
)
def test_a_pool_that_the_site_lacks_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, draft: str, arguments: str
) -> None:
    monkeypatch.setattr(f"flows.cli.{module}.{draft}", lambda *args, **options: EMPTY)
    command = [module, *arguments.split(), "--site", "slurm-local", "--state", str(tmp_path)]
    with pytest.raises(UserError, match="got 'nope'; pools are h100, urgent"):
        CliRunner().invoke(app, [*command, "--pool", "nope"], catch_exceptions=False)
    with pytest.raises(UserError, match="got no PREFECT_API_URL"):  # the pool is right then
        CliRunner().invoke(app, [*command, "--pool", "urgent"], catch_exceptions=False)
    assert not (tmp_path / "campaigns").exists() or not any((tmp_path / "campaigns").iterdir())

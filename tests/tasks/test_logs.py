"""The logs of contenders as an artifact: text, whatever it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.logs import attach_logs


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What artifacts there are."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "tasks.logs.create_markdown_artifact",
        lambda markdown, **more: found.append({"markdown": markdown, **more}),
    )
    return found


def test_each_contender_has_the_end_of_its_log_and_where_the_whole_is(
    tmp_path: Path, made: list[dict[str, Any]]
) -> None:
    (tmp_path / "jax.log").write_text("begun\n" + "x" * 5000 + "\nended\n")
    (tmp_path / "torch.log").touch()
    (tmp_path / "conductor.log").write_text("of nobody's contender")
    attach_logs(tmp_path, "mlp infer", "logs-0")
    ((told),) = made
    assert (told["key"], told["description"]) == ("logs-0", "mlp infer: logs of jax, torch")
    jax, torch = told["markdown"].split("## torch")
    assert "ended" in jax and "begun" not in jax and f"`{tmp_path / 'jax.log'}`" in jax
    assert "It said nothing." in torch and "nobody" not in told["markdown"]


def test_what_a_framework_says_stays_inside_its_fence(
    tmp_path: Path, made: list[dict[str, Any]]
) -> None:
    said = "\x1b[31mred\x1b[0m\x00\n````\n# not ours\n<img src=x>"
    (tmp_path / "jax.log").write_text(said)
    attach_logs(tmp_path, "mlp infer", "logs-0")
    lines = made[0]["markdown"].splitlines()
    first, last = lines.index("`````text"), lines.index("`````")
    assert lines[first + 1 : last] == ["red", "````", "# not ours", "<img src=x>"]


def test_a_duel_without_logs_has_no_artifact(tmp_path: Path, made: list[dict[str, Any]]) -> None:
    attach_logs(tmp_path / "nowhere", "mlp infer", "logs-0")
    assert made == []

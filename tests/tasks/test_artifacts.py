"""Artifacts: keys that collect versions, logs as text, the bar of a campaign's progress."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from benchcore.planning.matrix import save_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import STDLIB
from benchcore.protocol import DuelLimits
from benchcore.running.duel_process import result_path
from benchcore.running.plans import campaign_folder, draft_plan
from benchcore.state import open_state
from tasks.artifacts import attach_logs, name_key, show_progress


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What artifacts there are."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "tasks.artifacts.create_markdown_artifact",
        lambda markdown, **more: found.append({"markdown": markdown, **more}),
    )
    return found


def test_each_contender_has_the_end_of_its_log_and_the_path_of_the_whole(
    tmp_path: Path, made: list[dict[str, Any]]
) -> None:
    (tmp_path / "jax.log").write_text("begun\n" + "x" * 5000 + "\nended\n")
    (tmp_path / "torch.log").touch()
    (tmp_path / "conductor.log").write_text("of nobody's contender")
    attach_logs(tmp_path, "mlp infer", "night-0")
    ((created),) = made
    assert (created["key"], created["description"]) == (
        "logs-night",
        "mlp infer: logs of jax, torch",
    )
    jax, torch = created["markdown"].split("## torch")
    assert "ended" in jax and "begun" not in jax and f"`{tmp_path / 'jax.log'}`" in jax
    assert "This log is empty." in torch and "nobody" not in created["markdown"]


def test_the_output_of_a_framework_stays_inside_its_fence(
    tmp_path: Path, made: list[dict[str, Any]]
) -> None:
    output = "\x1b[31mred\x1b[0m\x00\n````\n# not ours\n<img src=x>"
    (tmp_path / "jax.log").write_text(output)
    attach_logs(tmp_path, "mlp infer", "night-0")
    lines = made[0]["markdown"].splitlines()
    first, last = lines.index("`````text"), lines.index("`````")
    assert lines[first + 1 : last] == ["red", "````", "# not ours", "<img src=x>"]


def test_a_duel_without_logs_has_no_artifact(tmp_path: Path, made: list[dict[str, Any]]) -> None:
    attach_logs(tmp_path / "nowhere", "mlp infer", "night-0")
    assert made == []


@pytest.mark.parametrize(
    ("campaign", "key"),
    [
        ("nightly-laptop-2026-11-23", "ratios-nightly-laptop"),
        ("nightly-h100_all-2026-11-23", "ratios-nightly-h100-all"),
        ("release-jax-0.11.0-0", "ratios-release-jax"),
        ("compare-resnet-1f00ba12", "ratios-compare-resnet"),
        ("compare-resnet-defacade", "ratios-compare-resnet"),
        ("confirm-12-level-5", "ratios-confirm"),
        ("confirm-12-level-0badcafe-5", "ratios-confirm"),
        ("my-own", "ratios-my-own"),
    ],
)
def test_the_campaigns_of_a_family_share_a_key(campaign: str, key: str) -> None:
    assert name_key("ratios", campaign) == key


def test_the_progress_bar_follows_the_duels_without_repeating_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, bar, created = open_state(tmp_path), uuid4(), list[tuple[Any, float, str]]()

    class Client:
        def update_artifact(self, artifact: Any, update: Any) -> None:
            created.append((artifact, update.data, update.description))

    @contextmanager
    def get_client(**_: object) -> Any:
        yield Client()

    monkeypatch.setattr("tasks.artifacts.get_client", get_client)
    monkeypatch.setattr("tasks.artifacts.create_progress_artifact", lambda *_, **__: bar)
    bare = [
        Match(
            workload="noop",
            case="bare",
            arms=(STDLIB,),
            expected_s=3,
            limits=DuelLimits(rounds=n),
        )
        for n in (2, 3)
    ]
    plan = draft_plan(Profile(name="cheap", matches=tuple(bare)), site="local", campaign="night")
    save_plan(plan, campaign_folder(state, "night") / "plan.json")
    with show_progress("night", str(state.root)) as update:
        document = result_path(state, "night", plan.duels[0].duel_run)
        document.parent.mkdir()
        document.touch()
        update()
        assert len(created) == 1  # it was updated less than a second ago
        monkeypatch.setattr("tasks.artifacts._PAUSE_S", 0.0)
        update()
        update()
        assert created == [(bar, 0, "0 of 2 duels measured"), (bar, 50, "1 of 2 duels measured")]
        monkeypatch.setattr("tasks.artifacts._PAUSE_S", 60.0)
        result_path(state, "night", plan.duels[1].duel_run).touch()
        update()
    assert created[2:] == [(bar, 100, "2 of 2 duels measured")]

"""The bar of a campaign's progress."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from benchcore.campaign import campaign_folder, draft_plan
from benchcore.matrix import save_plan
from benchcore.profiles import Match, Profile
from benchcore.shard import result_path
from benchcore.state import open_state
from benchcore.tracks import STDLIB
from tasks.progress import show_progress


def test_the_bar_follows_what_is_measured_and_says_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, bar, told = open_state(tmp_path), uuid4(), list[tuple[Any, float, str]]()

    class Client:
        def update_artifact(self, artifact: Any, update: Any) -> None:
            told.append((artifact, update.data, update.description))

    @contextmanager
    def get_client(**_: object) -> Any:
        yield Client()

    monkeypatch.setattr("tasks.progress.get_client", get_client)
    monkeypatch.setattr("tasks.progress.create_progress_artifact", lambda *_, **__: bar)
    bare = [
        Match(workload="noop", case="bare", arms=(STDLIB,), expected_s=3, rounds=n) for n in (2, 3)
    ]
    plan = draft_plan(Profile(name="cheap", matches=tuple(bare)), site="local", campaign="night")
    save_plan(plan, campaign_folder(state, "night") / "plan.json")
    with show_progress("night", str(state.root), "progress-night") as tell:
        document = result_path(state, "night", plan.duels[0].duel_run)
        document.parent.mkdir()
        document.touch()
        tell()
        tell()
    assert told == [(bar, 0, "0 of 2 duels measured"), (bar, 50, "1 of 2 duels measured")]

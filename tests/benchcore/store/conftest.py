from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchcore.state import State, open_state
from benchcore.store.database import Engine, open_database


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state")


@pytest.fixture
def engine(state: State, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    opened = open_database(state.database_url)
    yield opened
    opened.dispose()

"""Fixtures of several files here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from package_index import Index, serve_index

from benchcore.state import State
from benchcore.store.database import Engine, open_database


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """A package index on loopback, which uv is configured to use."""
    with serve_index() as made:
        for name, value in made.settings(tmp_path).items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def engine(state: State, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An empty SQLite; in `store/` also of another engine."""
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    opened = open_database(state.database_url)
    yield opened
    opened.dispose()

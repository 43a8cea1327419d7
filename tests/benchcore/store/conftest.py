"""An empty database per test: SQLite. Tests of what engines do differently run on both, with
`each_engine`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgres_server import make_database

from benchcore.state import State
from benchcore.store.database import Engine, open_database


@pytest.fixture
def engine(state: State, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    opened = open_database(state.database_url)
    yield opened
    opened.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def each_engine(
    request: pytest.FixtureRequest, state: State, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """DEADHEAT_DATABASE_URL names it, too."""
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        monkeypatch.setenv("DEADHEAT_DATABASE_URL", make_database(server, request.node.name))
    opened = open_database(state.database_url)
    yield opened
    opened.dispose()

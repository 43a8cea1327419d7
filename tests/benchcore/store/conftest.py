"""An empty database per test: SQLite, or with `--engine postgresql` a PostgreSQL. Tests of what
engines do differently always run on both, with `each_engine`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgres_server import make_database

from benchcore.state import State
from benchcore.store.database import Engine, open_database


@pytest.fixture
def engine(
    request: pytest.FixtureRequest, state: State, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """DEADHEAT_DATABASE_URL names it, if it is no SQLite."""
    yield from _open(request.config.getoption("--engine"), request, state, monkeypatch)


@pytest.fixture(params=["sqlite", "postgresql"])
def each_engine(
    request: pytest.FixtureRequest, state: State, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """As `engine`, on both."""
    yield from _open(request.param, request, state, monkeypatch)


def _open(
    kind: str, request: pytest.FixtureRequest, state: State, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    if kind == "postgresql":
        server = request.getfixturevalue("postgres_server")
        monkeypatch.setenv("DEADHEAT_DATABASE_URL", make_database(server, request.node.name))
    opened = open_database(state.database_url)
    yield opened
    opened.dispose()

"""A PostgreSQL that vanishes, and a process that is suspended within a transaction, hold up no
night."""

from __future__ import annotations

import socket

import pytest
from postgres_server import make_database
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from benchcore.errors import UserError
from benchcore.store import database
from benchcore.store.database import Engine, begin_writing, is_unreachable, open_database

_LOCK = text("LOCK TABLE ratio")


def _read_parameters(url: str) -> dict[str, str]:
    engine = open_database(url)
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        found = driver.info.get_parameters()
    engine.dispose()
    return found


def test_a_server_that_vanishes_is_given_up_after_a_minute(postgres_server: str) -> None:
    url = make_database(postgres_server, "vanishes")
    given = _read_parameters(url)
    names = ("idle", "interval", "count")
    idle, interval, count = (int(given.get(f"keepalives_{each}", 9999)) for each in names)
    assert idle + interval * count <= 60
    assert int(given.get("tcp_user_timeout", 0)) in range(1, 60_001)
    own = _read_parameters(f"{url}?keepalives_idle=7")
    assert own == {**given, "keepalives_idle": "7"}


def test_a_server_that_takes_a_connection_and_is_silent_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(database._WATCHED, "connect_timeout", 2)  # psycopg waits no shorter
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://nobody@127.0.0.1:{silent.getsockname()[1]}/none"
        with pytest.raises(UserError, match="start it, or correct the URL") as refused:
            open_database(url)
    assert is_unreachable(refused.value)


def _can_lock(engine: Engine) -> bool:
    try:
        with begin_writing(engine) as session:
            session.execute(text("SET LOCAL lock_timeout = '20s'"))
            session.execute(_LOCK)
    except OperationalError:
        return False
    return True


def test_a_transaction_that_a_suspended_process_leaves_open_frees_its_locks(
    postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process finds its connection ended, and tries again."""
    url = make_database(postgres_server, "suspended")
    with monkeypatch.context() as patch:
        patch.setattr(database, "_LONGEST_IDLE_MS", 300)
        suspended = open_database(url)
        connection = suspended.connect()
    other = open_database(url)
    connection.execute(_LOCK)
    assert _can_lock(other)
    with pytest.raises(DBAPIError) as ended:
        connection.execute(text("SELECT 1"))
    assert is_unreachable(ended.value)
    connection.close()
    for each in (suspended, other):
        each.dispose()

"""A temporary server comes up whatever earlier ones left, and a client waits while it fails."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.context import SettingsContext, get_settings_context
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import Settings

from benchcore.state import State
from flows.server.temporary_api import _move_damaged, set_prefect_defaults


@pytest.mark.parametrize("how", ["cut", "overwritten"])
def test_a_damaged_database_is_moved_away_and_a_sound_one_stays(tmp_path: Path, how: str) -> None:
    path, memo = tmp_path / "prefect.db", tmp_path / "memo_store.toml"
    _move_damaged(tmp_path)  # there is none
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE log (line TEXT)")
        made.executemany("INSERT INTO log VALUES (?)", [("x" * 1000,)] * 100)
    memo.touch()
    sound = path.read_bytes()
    _move_damaged(tmp_path)
    assert path.read_bytes() == sound and memo.exists()
    path.write_bytes(sound[:1000] if how == "cut" else b"no database" * 500)
    _move_damaged(tmp_path)
    assert not path.exists() and not memo.exists()
    assert (tmp_path / "prefect.db.damaged").exists()


@contextmanager
def _serve_failures(status: int, times: int) -> Iterator[tuple[str, list[int]]]:
    """An API on loopback that fails so many times; its address, and the status of each answer."""
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.append(status if len(answers) < times else 200)
            self.send_response(answers[-1])
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api", answers
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("status", [500, 503])
def test_a_client_waits_while_its_server_answers_with_errors(status: int, tmp_path: Path) -> None:
    """As for a lost connection: a database that is locked or away makes a server answer so."""
    os.environ.pop("PREFECT_CLIENT_RETRY_EXTRA_CODES", None)
    set_prefect_defaults(State(tmp_path))
    with _serve_failures(status, 2) as (api, answers):
        os.environ["PREFECT_API_URL"] = api
        ours = SettingsContext(profile=get_settings_context().profile, settings=Settings())
        with ours, suppress(PrefectHTTPStatusError), get_client(sync_client=True) as client:
            client.hello()
    assert answers == [status, status, 200]

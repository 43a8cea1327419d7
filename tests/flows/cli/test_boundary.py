"""Errors end as one paragraph with what to do; --debug shows the traceback."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import httpx
import pytest
from command_line import run_here
from prefect.exceptions import PrefectHTTPStatusError
from sqlalchemy.exc import DatabaseError, OperationalError

from benchcore.errors import CampaignIncompleteError, DamagedFileError, UserError
from benchcore.running.progress import ProgressLog, ProgressReader
from flows.cli.boundary import explain_failure, take_debug


def _sqlite_error(code: int) -> DatabaseError:
    cause = sqlite3.DatabaseError("file is not a database")
    cause.sqlite_errorcode = code
    return DatabaseError("SELECT", {}, cause)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UserError("no case 'huge'"), 2, "no case 'huge'"),
        (CampaignIncompleteError("lost"), 1, "lost"),
        (DamagedFileError("plan"), 1, "plan"),
        (_sqlite_error(sqlite3.SQLITE_NOTADB), 1, "run `deadheat rebuild`"),
        (_sqlite_error(sqlite3.SQLITE_CORRUPT), 1, "run `deadheat rebuild`"),
        (OperationalError("SELECT", {}, Exception("server closed")), 1, "check that it runs"),
        (httpx.ConnectError("refused"), 1, "wanted the Prefect server to answer"),
        (PermissionError(13, "Permission denied", "/x"), 1, "'/x', but Permission denied"),
        (KeyError("a\nb"), 1, "report the traceback"),
    ],
)
def test_each_error_says_what_to_do_and_has_its_exit_code(
    error: Exception, code: int, words: str
) -> None:
    failure = explain_failure(error)
    assert failure.code == code and words in failure.text and "\n" not in failure.text


def test_errors_of_prefect_are_the_servers() -> None:
    response = httpx.Response(500, request=httpx.Request("GET", "http://127.0.0.1/api"))
    error = PrefectHTTPStatusError("boom", request=response.request, response=response)
    assert "wanted the Prefect server" in explain_failure(error).text


def test_a_damaged_database_ends_a_command_with_one_paragraph(tmp_path: Path) -> None:
    (tmp_path / "deadheat.db").write_bytes(b"SQLite format 3\0" + b"no page" * 600)
    ended = run_here("events", "--state", str(tmp_path))
    assert ended.returncode == 1 and "run `deadheat rebuild`" in ended.stderr
    assert "Traceback" not in ended.stderr
    with pytest.raises(Exception, match=r"malformed|not a database"):
        run_here("events", "--state", str(tmp_path), "--debug")


def test_a_truncated_plan_ends_a_command_with_what_to_do(tmp_path: Path) -> None:
    plan = tmp_path / "campaigns" / "night" / "plan.json"
    plan.parent.mkdir(parents=True)
    plan.write_text('{"campaign": "ni')
    ended = run_here("check", "night", "--state", str(tmp_path))
    assert ended.returncode == 1 and "remove this file and rerun" in ended.stderr


def test_debug_is_taken_wherever_it_is() -> None:
    arguments = ["deadheat", "events", "--debug", "--json"]
    assert take_debug(arguments) and arguments == ["deadheat", "events", "--json"]
    assert not take_debug(arguments)


def test_a_damaged_line_of_a_log_costs_that_line(tmp_path: Path) -> None:
    log = ProgressLog(tmp_path / "progress.jsonl")
    log.append(event="one")
    with log.path.open("a") as stream:
        stream.write('\0\0{"event": "tw\n[1]\n')
    log.append(event="three")
    events = ProgressReader(log.path).read_new()
    assert [each["event"] for each in events] == ["one", "three"]

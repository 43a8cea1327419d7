"""Tasks that use the database are run again where its server was away, and only there."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import psycopg
import pytest
from prefect.states import exception_to_failed_state
from sqlalchemy.exc import InternalError, OperationalError

from benchcore.errors import UserError
from tasks import pipeline


def _wrap(original: Exception) -> OperationalError:
    return OperationalError("SELECT 1", None, original)


def _refused() -> UserError:
    error = UserError("wanted the database")
    error.__cause__ = _wrap(psycopg.OperationalError("connection refused"))
    return error


def _end_idle() -> InternalError:
    """What a process finds that was suspended within a transaction."""
    cause = psycopg.errors.IdleInTransactionSessionTimeout("terminating connection")
    return InternalError("SELECT 1", None, cause)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (_wrap(psycopg.errors.AdminShutdown("terminating connection")), True),
        (_wrap(psycopg.errors.ConnectionFailure("server closed the connection")), True),
        (_refused(), True),
        (_end_idle(), True),
        (_wrap(psycopg.errors.DiskFull("no space left")), False),
        (_wrap(psycopg.errors.QueryCanceled("canceled")), False),
        (_wrap(sqlite3.OperationalError("database is locked")), False),
        (UserError("wanted another campaign"), False),
    ],
    ids=str,
)
def test_only_an_outage_is_worth_another_try(error: Exception, again: bool) -> None:
    async def decide() -> bool:
        state = await exception_to_failed_state(error)
        return await pipeline.is_outage(cast(Any, None), cast(Any, None), state)

    with ThreadPoolExecutor(1) as pool:  # a browser's tests leave a loop in this thread
        assert pool.submit(asyncio.run, decide()).result() is again


@pytest.mark.parametrize(
    "task",
    [
        pipeline.plan_campaign,
        pipeline.ingest_results,
        pipeline.check_results,
        pipeline.judge_results,
        pipeline.publish_dashboard,
        pipeline.prune_state,
    ],
    ids=lambda task: task.name,
)
def test_tasks_that_use_the_database_are_patient(task: Any) -> None:
    assert task.retries == 3 and task.retry_condition_fn is pipeline.is_outage
    assert sum(task.retry_delay_seconds) > 30

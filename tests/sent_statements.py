"""What a reading sends to the database, for tests that look at the database's plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event


def record_statements(engine: Engine, read: Callable[[], object]) -> list[tuple[str, Any]]:
    """The text and values of each statement that `read` sends."""
    sent: list[tuple[str, Any]] = []

    def record(*args: Any) -> None:
        sent.append((args[2], args[3]))

    event.listen(engine, "before_cursor_execute", record)
    read()
    event.remove(engine, "before_cursor_execute", record)
    return sent

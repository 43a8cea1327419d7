"""The errors that cross modules: what a user can fix, and what could not be measured or built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MOST_SHOWN = 100
"""Characters of an input that an error message repeats."""


class UserError(Exception):
    """Bad input, or a requirement that this machine lacks: one paragraph with what was wanted, what
    came, and what to do. The command line prints it and exits with code 2."""


class CampaignIncompleteError(Exception):
    """Some duels left no result, or some documents were refused; everything measured is stored.
    `outcome` is that of what was measured, if it was published."""

    def __init__(self, message: str, outcome: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome


class DamagedFileError(Exception):
    """A file of the state folder can't be read, as after a crash: which, why, and what to do."""


class ServerNotStartedError(Exception):
    """A server of our own does not answer: what to do."""


class EnvironmentBuildError(Exception):
    """An environment could not be locked, built or verified: an infrastructure failure, never a
    benchmark result."""


def show(path: Path) -> str:
    """The end of a path for an error message: quoted, ASCII, at most MOST_SHOWN characters."""
    return ascii(str(path)[-MOST_SHOWN:])


def and_more(count: int) -> str:
    """` and 3 more`; empty for 0."""
    return f" and {count} more" if count > 0 else ""

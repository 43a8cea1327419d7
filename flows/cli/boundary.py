"""The one place where errors end: a paragraph with what to do, and an exit code."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from benchcore.errors import (
    CampaignIncompleteError,
    DamagedFileError,
    EnvironmentBuildError,
    ServerNotStartedError,
    UserError,
)

_OURS = (CampaignIncompleteError, DamagedFileError, EnvironmentBuildError, ServerNotStartedError)
DEBUG = "--debug"
_MOST_SHOWN = 600


@dataclass(frozen=True)
class CommandFailure:
    """What a command prints instead of a traceback, and its exit code."""

    text: str
    code: int


def explain_failure(error: Exception) -> CommandFailure:
    """The paragraph and the exit code of an error that ended a command: 2 for bad input, else 1."""
    if isinstance(error, UserError):
        return CommandFailure(str(error), 2)
    if isinstance(error, _OURS):
        return CommandFailure(str(error), 1)
    for explain in (_explain_disk, _explain_database, _explain_server, _explain_file):
        if text := explain(error):
            return CommandFailure(text, 1)
    return CommandFailure(
        f"unexpected error, which is a bug of Dead Heat: {_shorten(error)}; results are stored. "
        f"Rerun the command with {DEBUG} and report the traceback",
        1,
    )


def _explain_disk(error: Exception) -> str | None:
    from benchcore.store.database import is_disk_full  # SQLAlchemy takes 0.5 s

    if not is_disk_full(error):
        return None
    return (
        f"wanted to write, but the disk is full ({_shorten(error)}); free some space, and rerun "
        "the same command: finished measurements are stored"
    )


def _explain_database(error: Exception) -> str | None:
    from benchcore.store.database import is_damaged, is_database_error

    cause = getattr(error, "orig", None) or error
    if not is_database_error(error):
        return None
    if is_damaged(error):
        return (
            f"wanted the database, but its file is damaged ({_shorten(cause)}); move it away, and "
            "run `deadheat rebuild`: it makes the database again from the documents"
        )
    return (
        f"wanted the database to answer, but {_shorten(cause)}; check that it runs and that it is "
        "writable, and rerun the same command: finished measurements are stored"
    )


def _explain_server(error: Exception) -> str | None:
    """Prefect's errors and those of its HTTP client, which are imported if they were raised."""
    modules = {each.__module__.partition(".")[0] for each in type(error).__mro__}
    if not modules & {"httpx", "httpcore", "prefect", "websockets"}:
        return None
    return (
        f"wanted the Prefect server to answer, but {_shorten(error)}; start it again (a temporary "
        "one starts with the command), and rerun the same command: finished measurements are stored"
    )


def _explain_file(error: Exception) -> str | None:
    if not isinstance(error, OSError) or error.filename is None:
        return None
    return (
        f"wanted to use {str(error.filename)!r}, but {error.strerror or error}; check that the "
        "path exists and is writable, and rerun the same command: finished measurements are stored"
    )


def _shorten(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def take_debug(arguments: list[str]) -> bool:
    """Whether `--debug` is among the arguments of a command line; removes it, wherever it is."""
    found = DEBUG in arguments
    arguments[:] = [each for each in arguments if each != DEBUG]
    return found


def end_with(error: Exception) -> None:
    """Print what to do about an error, and exit."""
    from flows.cli.printing import print_error  # Rich takes 0.1 s, which --help does without

    failure = explain_failure(error)
    print_error(failure.text)
    sys.exit(failure.code)

"""The errors that are told apart: what a user can mend, and what an environment could not do."""

from __future__ import annotations

from pathlib import Path

MOST_SHOWN = 100
"""Characters of what came, in the words of an error."""


class UserError(Exception):
    """Bad input or a machine that lacks something: one paragraph naming what was wanted, what
    came, and what to do. The command line prints it and exits with code 2."""


class CampaignIncompleteError(Exception):
    """Some duels left no result, or some documents were refused; what was measured is kept."""


class EnvironmentBuildError(Exception):
    """An environment could not be locked, built or verified: an infrastructure failure, never a
    benchmark result."""


def show(path: Path) -> str:
    """A path's end, quoted and in ASCII, as it may stand in the words of an error."""
    return ascii(str(path)[-MOST_SHOWN:])


def and_more(count: int) -> str:
    """` and 3 more`; nothing for none."""
    return f" and {count} more" if count > 0 else ""

"""What the contenders of a duel said, on the page of the run that measured it."""

from __future__ import annotations

import re
from pathlib import Path

from prefect.artifacts import create_markdown_artifact

_MOST_WORDS = 4000
_CONDUCTOR = "conductor"
_MARKS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Of terminals."""


def attach_logs(folder: Path, title: str, key: str) -> None:
    """The end of each contender's log, and where the whole of it is."""
    paths = sorted(each for each in folder.glob("*.log") if each.stem != _CONDUCTOR)
    if paths:
        create_markdown_artifact(
            "\n".join(map(_write, paths)),
            key=key,
            description=f"{title}: logs of {', '.join(path.stem for path in paths)}",
        )


def _write(path: Path) -> str:
    """As Markdown. Whatever a framework says is text there, never markup."""
    said = _MARKS.sub("", path.read_text(encoding="utf-8", errors="replace"))[-_MOST_WORDS:].strip()
    longest = max((len(each) for each in re.findall("`+", said)), default=0)
    fence = "`" * max(3, longest + 1)
    shown = f"{fence}text\n{said}\n{fence}" if said else "It said nothing."
    return f"## {path.stem}\n\n{shown}\n\nThe whole of it: `{path}`\n"

"""Artifacts on a run's page in Prefect: their keys, logs of contenders, a campaign's progress. And
how Prefect's functions are called that exist twice, for callers with and without a loop."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from benchcore.running import duels, plans
from benchcore.state import State

WAITED: dict[str, Any] = {"_sync": True}
"""Makes Prefect answer at once, with no coroutine, also where a loop runs, as in a notebook."""
_MAX_TEXT = 4000
_CONDUCTOR = "conductor"
_PAUSE_S = 1.0
"""Between two updates of a progress bar: the next duel waits for each."""
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Control sequences of terminals."""
_RUN = re.compile(r"-(\d[0-9a-z._-]*|[0-9a-f]{8})$")
"""The end of a campaign's name that differs within its family: a date, version, number, id."""


def name_key(kind: str, campaign: str) -> str:
    """The key of an artifact: one for each kind and family of campaigns, such as
    `ratios-nightly-laptop`, so that the artifacts of each night are versions of it."""
    family = _RUN.sub("", campaign)
    return re.sub("[^a-z0-9]+", "-", f"{kind}-{family}")


def shorten_id(run: object) -> str:
    """The end of a flow run's id, which names its campaign. All runs that a schedule creates in one
    minute have the same beginning."""
    return str(run)[-8:]


def show_table(
    key: str,
    rows: Sequence[Mapping[str, Any]],
    description: str | None = None,
    columns: Sequence[str] | None = None,
) -> None:
    """Show rows as a table on the run's page, with these columns or all. No rows, no table."""
    if rows:
        table = [{name: row[name] for name in columns or row} for row in rows]
        create_table_artifact(key=key, table=table, description=description)


def attach_logs(folder: Path, title: str, campaign: str) -> None:
    """Attach the end of each contender's log to the current run, with the path of the whole."""
    paths = sorted(each for each in folder.glob("*.log") if each.stem != _CONDUCTOR)
    if paths:
        create_markdown_artifact(
            "\n".join(map(_format_log, paths)),
            key=name_key("logs", campaign),
            description=f"{title}: logs of {', '.join(path.stem for path in paths)}",
        )


def _format_log(path: Path) -> str:
    """A log as Markdown: whatever a framework prints is shown as text, never as markup."""
    text = path.read_text(encoding="utf-8", errors="replace")
    text = _CONTROL.sub("", text)[-_MAX_TEXT:].strip()
    longest = max((len(each) for each in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    shown = f"{fence}text\n{text}\n{fence}" if text else "This log is empty."
    return f"## {path.stem}\n\n{shown}\n\nThe whole log: `{path}`\n"


@contextmanager
def show_progress(campaign: str, root: str) -> Iterator[Callable[[], None]]:
    """Show how many of a campaign's duels are measured, as a bar on the run's page; the function
    that this yields updates it, at most once in _PAUSE_S."""
    state = State(Path(root))
    plan = plans.load_campaign(state, campaign)
    shown, shown_at = -1, -math.inf
    key = name_key("progress", campaign)
    artifact = create_progress_artifact(0.0, key=key, description="no duel measured yet")
    assert isinstance(artifact, UUID)
    with get_client(sync_client=True) as client:

        def show() -> None:
            nonlocal shown, shown_at
            measured = sum(duels.is_measured(state, plan, duel) for duel in plan.duels)
            shown_at = time.monotonic()
            if measured == shown:
                return
            shown, total = measured, len(plan.duels)
            description = f"{measured} of {total} duels measured"
            bar = ArtifactUpdate(data=100 * measured / total, description=description)
            client.update_artifact(artifact, bar)

        def update() -> None:
            if time.monotonic() - shown_at >= _PAUSE_S:
                show()

        show()
        yield update
        show()

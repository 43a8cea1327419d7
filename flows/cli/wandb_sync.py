"""The commands `deadheat wandb`: campaigns as runs of Weights & Biases."""

from __future__ import annotations

from typing import Annotated

import typer

from benchcore.state import open_state
from dashboards.to_wandb.runs import LIMIT_S, list_waiting, send_runs, write_run
from flows.cli import options
from flows.cli.printing import print_line

wandb = typer.Typer(
    help="Send campaigns to Weights & Biases.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@wandb.callback()
def _wandb() -> None:
    """Send campaigns to Weights & Biases."""


@wandb.command()
def sync(
    campaigns: Annotated[
        list[str] | None,
        typer.Argument(metavar="CAMPAIGN", help="Also write and send these campaigns."),
    ] = None,
    limit: Annotated[
        float,
        typer.Option(
            "--limit",
            metavar="SECONDS",
            min=1,
            help="Stop writing or sending one run after this long.",
        ),
    ] = LIMIT_S,
    state: options.State = options.STATE,
) -> None:
    """Send the runs and reports that wait in the state folder.

    DEADHEAT_WANDB names the project. Exit code 1 if a run is still unsent.
    """
    opened = open_state(state)
    for each in campaigns or ():
        write_run(opened, each, limit)
    waiting = len(list_waiting(opened))
    reason = send_runs(opened, limit)
    left = len(list_waiting(opened))
    print_line(f"{waiting - left} of {waiting} runs sent")
    if reason is not None:
        print_line(reason)
        raise typer.Exit(1)

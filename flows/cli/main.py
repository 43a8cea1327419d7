"""The command line: a table of commands. Calling one imports its module, and no other."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from flows.cli.boundary import end_with, take_debug

_WIDTH = 100
"""Most columns of the help."""


@dataclass(frozen=True)
class Command:
    """One row of the table."""

    name: str
    help: str
    """How its docstring begins."""
    module: str = ""
    """Below `flows` (default: `cli.NAME`); it has a function of that name, or the Typer app of a
    group of commands."""


_TABLE: Mapping[str, Sequence[tuple[str, ...]]] = {
    "Measure": (
        ("nightly", "Measure tonight's duels and publish them."),
        ("plan", "Show what a night would measure, with today's versions."),
        ("run", "Measure a saved plan, or one duel of your own.", "cli.nightly"),
        ("compare", "Measure which of two versions or settings is faster on one case."),
        (
            "sweep",
            "Compare two sides over several batch sizes, device counts, model sizes or numbers of "
            "concurrent models.",
        ),
        ("backfill", "Measure past versions of a framework, and list what each changed."),
        ("train", "Train on a data set on both sides, and compare their epochs."),
        (
            "seed0",
            "Compare JAX and PyTorch on one of sixteen combinations: a benchmark and a use case.",
        ),
        (
            "defects",
            "Reproduce known benchmarking errors: what each does to the ratio, what detects it.",
        ),
        (
            "waterfall",
            "Measure what each PyTorch setting gains, from eager to CUDA graphs, against JAX.",
        ),
        (
            "tune",
            "Search for the fastest fair settings of both sides, for the tuned track.",
        ),
        ("plants", "Run unfair sides against fair ones: each must be refused by its own guard."),
        ("equivalence", "Prove that versions compute the same function, against float64."),
    ),
    "Judge": (
        ("check", "Decide which rows count, then judge them again.", "cli.report"),
        ("judge", "Test whether b is slower than a from paired timings."),
        ("detect", "Detect change points in a nightly series."),
        (
            "calibration",
            "Show how often our own verdicts are wrong, from runs whose truth is known.",
        ),
        ("certificates", "List per case and metric what each release changed."),
    ),
    "Understand a change": (
        ("guide", "Show which framework is faster for your case, from pairs that count."),
        ("suspicions", "List suspected changes in all series, open ones first."),
        (
            "confirm",
            "Measure suspicions again with fresh starts, and name the framework that changed.",
        ),
        ("bisect", "Find the version that changed a case; with --dependencies also the package."),
        ("events", "List confirmed changes; show, acknowledge or annotate one."),
    ),
    "Serve": (
        ("up", "Start Prefect's server, a worker, the deployments and the dashboard.", "server.up"),
        ("status", "Show which services of `deadheat up` run.", "server.up"),
        ("down", "Stop everything that `deadheat up` started.", "server.up"),
        (
            "deploy",
            "Create or update the deployments of a Prefect server that is running.",
            "server.deploy",
        ),
        (
            "pause",
            "Start nothing new until `deadheat resume`. What runs continues.",
            "server.pausing",
        ),
        ("resume", "Resume everything that `deadheat pause` stopped.", "server.pausing"),
        ("shard", "Print what a Slurm site submits: batch script and job template."),
    ),
    "Data": (
        ("workloads", "List workloads and their cases.", "cli.inventory"),
        ("environments", "List environments, after building those you name.", "cli.inventory"),
        ("verify", "Check that this machine has what a profile and a site need.", "cli.inventory"),
        (
            "ingest",
            "Load result documents and proofs from the state folder into the database.",
            "cli.report",
        ),
        (
            "db",
            "Check the database, copy it, export and import its tables.",
            "cli.database",
        ),
        ("chaos", "Inject faults into nights of the workload noop, and count what is lost."),
        ("prune", "Remove files that no recent night needs, and show the size of what remains."),
        ("rebuild", "Rebuild the database from documents alone."),
        ("report", "Publish a campaign's dashboard again from the database."),
        ("demo", "Build the dashboard of a made-up year, without measuring anything."),
        ("export", "Write the numbers that count as tables with their provenance."),
        ("wandb", "Send campaigns to Weights & Biases.", "cli.wandb_sync"),
    ),
}
SECTIONS = {title: [Command(*each) for each in listed] for title, listed in _TABLE.items()}
"""Every command under the section of `deadheat --help` that lists it, in order."""

_COMMANDS = {each.name: each for listed in SECTIONS.values() for each in listed}


class _LazyGroup(TyperGroup):
    """Lists commands from the table, and imports the one that is called. Overriding methods is
    Click's documented way to load commands lazily."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that these arguments call."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)), rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the help's sections."""
        for title, listed in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(each.name.ljust(12), each.help) for each in listed])


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich's help costs 0.2 s of CPU: it imports parsers of Markdown and of source code.
    rich_markup_mode=None,
    context_settings={"max_content_width": _WIDTH},
)


@app.callback()
def _describe() -> None:
    """Benchmark JAX against PyTorch: the same work, interleaved on one device. Dead Heat proves
    that both compute the same function, and reports which version changed the speed.

    `deadheat COMMAND --help` explains a command. Exit codes: 0 success, 1 something failed, is
    missing or could not be measured, 2 bad input. `--debug` shows an error's traceback.
    """


for _row in _COMMANDS.values():
    app.command(_row.name, help=_row.help)(lambda: None)


def load_command(name: str) -> Any:
    """Import a command of the table; what Typer makes of it."""
    found = getattr(
        importlib.import_module(f"flows.{_COMMANDS[name].module or f'cli.{name}'}"), name
    )
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
        found.command(name)(function)
    command = typer.main.get_command(found)
    command.name = name
    return command


def load_commands() -> TyperGroup:
    """The whole command line with every command imported, for those who document or check it."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    group.commands = {name: load_command(name) for name in _COMMANDS}
    return group


def main() -> None:
    """Entry point: bad input exits with 2, everything else that failed with 1."""
    debug = take_debug(sys.argv)
    try:
        app()
    except Exception as error:
        if debug:
            raise
        end_with(error)


if __name__ == "__main__":
    main()

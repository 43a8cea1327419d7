"""The command `deadheat prune`: remove the files that no recent night needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from benchcore.running.retention import list_sizes, list_unneeded
from benchcore.state import open_state
from flows.cli import options
from flows.cli.options import option
from flows.cli.printing import print_json, print_line, print_rows

_KEEP = "Keep all files of this many newest nights (days with a campaign)."
_DRY = "Remove nothing; show what would be removed."


def prune(
    keep_nights: Annotated[int, option("--keep-nights", "COUNT", _KEEP, min=1, max=100_000)] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=_DRY)] = False,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Remove files that no recent night needs, and show the size of what remains.

    Removes evidence, logs, caches, pages and Data Docs of older duels, packages of environments
    that only older nights used, and old snapshots. Packs result documents to a tenth of their size.
    Keeps proofs, plans, locks, pages of nights, the database, and environments that an undecided
    suspicion or an open event compares.
    """
    from dashboards.publish import remove_files  # which other commands do without

    opened = open_state(state)
    removals = list_unneeded(opened, keep_nights)
    frees = dict.fromkeys((each.part for each in removals), 0)
    for each in removals:
        frees[each.part] += each.num_bytes
    freed = 0 if dry_run else remove_files(opened, removals)
    sizes = list_sizes(opened)
    if as_json:
        print_json({"sizes": sizes, "removals": frees, "freed": freed})
        return
    rows = [{"what": part, "frees": _format(size)} for part, size in frees.items()]
    print_rows(rows, ("what", "frees"), title="Would be removed" if dry_run else "Removed")
    print_sizes(sizes, "Now" if dry_run else "Remaining")
    print_line(
        f"{_format(sum(frees.values()))} would be removed" if dry_run else f"{_format(freed)} freed"
    )


def print_sizes(sizes: Mapping[str, int], title: str) -> None:
    """A table of the state folder's parts."""
    rows = [{"in the state folder": name, "size": _format(size)} for name, size in sizes.items()]
    print_rows(rows, ("in the state folder", "size"), title=title)


def _format(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"

"""The command `deadheat export`: the numbers that count as files, with their provenance."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from benchcore.errors import UserError
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.duels import list_campaigns
from benchcore.store.reports.export import export_tables
from benchcore.store.reports.guide import list_answers
from flows.cli import options
from flows.cli.options import option
from flows.cli.printing import print_json, print_line

_FOLDER = "Write into this folder."
_CAMPAIGN = "Export this campaign; repeat for more (default: all)."
_FORMAT = "Write csv, json, parquet, latex or markdown; repeat for more (default csv)."
_BLOCKS = "Write the table blocks, too: the raw times, a row per timed block."
_README = (
    "Write a table of the newest results into this Markdown file, too, between its markers "
    "(default: none)."
)


def export(
    folder: Annotated[Path, option("--folder", "FOLDER", _FOLDER)] = Path("export"),
    campaigns: Annotated[list[str] | None, option("--campaign", "NAME", _CAMPAIGN)] = None,
    formats: Annotated[list[str] | None, option("--format", "NAME", _FORMAT)] = None,
    readme: Annotated[Path | None, option("--readme", "FILE", _README)] = None,
    blocks: Annotated[bool, option("--blocks", None, _BLOCKS)] = False,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Write the numbers that count as tables with their provenance.

    ratios has a row per pair, measurements one per contender, events one per confirmed change.
    latex writes tables and figures of throughput, latency, memory and energy, the scaling by batch,
    and the sizes of the models. markdown writes a table of the newest ratios. export.json names the
    files with their hashes.
    """
    # Altair takes a second
    from dashboards.export import write_tables
    from dashboards.readme import replace_block, split_at_markers, tabulate_answers

    if readme is not None:
        split_at_markers(readme)  # nothing is written before it is known to have them
    engine = open_database(open_state(state).database_url)
    known = list_campaigns(engine)
    for each in campaigns or ():
        if each not in known:
            raise UserError(
                f"no campaign {each[:100]!r} in the database; campaigns are "
                f"{', '.join(known) or 'none yet'}; choose one of them with --campaign"
            )
    chosen = list(dict.fromkeys(campaigns or known))
    about = {"exported_at": datetime.now(UTC).isoformat(timespec="seconds"), "campaigns": chosen}
    tables = export_tables(engine, chosen, blocks=blocks)
    files = write_tables(folder, tables, formats or ["csv"], about)
    if readme is not None:
        replace_block(readme, tabulate_answers(list_answers(engine)))
    if as_json:
        print_json({**about, "files": [str(each) for each in files]})
        return
    for each in files:
        print_line(str(each))

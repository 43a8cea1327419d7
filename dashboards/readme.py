"""The newest results as a table in a Markdown file of others, such as a project's README."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from benchcore import variables
from benchcore.errors import DamagedFileError, UserError
from benchcore.names import arm_label, name_case_in_words
from benchcore.state import State
from dashboards.export import replace_file, write_markdown
from dashboards.formatting import format_speedup
from dashboards.website.files import WebsiteFiles
from dashboards.website.guide_pages.rows import read_guide_rows
from dashboards.website.names import order_words

BEGIN, END = "<!-- deadheat:results -->", "<!-- /deadheat:results -->"


def update_readme(state: State) -> str | None:
    """Replace the table in the file that DEADHEAT_README names, if any, by the newest results on
    the dashboard. None, or why that could not be done and what to do: no campaign fails for it."""
    variable = variables.README
    name = variable.read()
    if name is None:
        return None
    try:
        replace_block(Path(name), tabulate_answers(read_guide_rows(WebsiteFiles(state.website))))
    except (DamagedFileError, UserError) as error:
        return f"{variable.name} has no new results: {error}"
    except OSError as error:
        return (
            f"{variable.name} has no new results: {error}; set it to a Markdown file in a folder "
            "that this user can write to"
        )
    return None


def tabulate_answers(answers: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The newest ratio of each case, device and pair of arms in words, from the rows of
    `benchcore.store.reports.guide.list_answers`. Only what counts."""
    rows = [
        {
            "Case": name_case_in_words(row),
            "Device": row["device_model"],
            "JAX": _name_side(row, "a"),
            "PyTorch": _name_side(row, "b"),
            "Speedup of JAX over PyTorch (95 %)": format_speedup(
                row["log_ratio"], row["low"], row["high"]
            ),
            "Measured": f"{row['started_at']:%Y-%m-%d}",
        }
        for row in answers
        if row["counts"]
    ]
    return pd.DataFrame(sorted(rows, key=lambda row: order_words(row["Case"], row["Device"])))


def _name_side(row: Mapping[str, Any], side: str) -> str:
    """`2.15.0 compiled`: the column names the framework."""
    return f"{row[f'{side}_version']} {arm_label(row[f'{side}_arm'])}".strip()


def replace_block(path: Path, table: pd.DataFrame) -> None:
    """Put the table between the markers of a Markdown file: see `split_at_markers`."""
    before, after = split_at_markers(path)
    shown = "No pair counts yet.\n" if table.empty else write_markdown(table).decode()
    # A table needs an empty line before it where the marker ends a paragraph.
    block = f"{BEGIN}\n\n{shown}\n{END}"
    replace_file(path.resolve(), f"{before}{block}{after}".encode())


def split_at_markers(path: Path) -> tuple[str, str]:
    """What stands before and after the block of a Markdown file. Raises UserError if there is no
    such file, or if it does not hold both markers once."""
    if not path.is_file():
        raise UserError(
            f"wanted a Markdown file in {str(path)!r}, found none; create it with the markers "
            f"{BEGIN} and {END}, or name another one"
        )
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise UserError(f"wanted UTF-8 in {str(path)!r}, but {error}; save it as UTF-8") from error
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UserError(
            f"wanted the markers {BEGIN} and {END} once in {str(path)!r}, in this order; add them "
            "where the results belong"
        )
    return text.partition(BEGIN)[0], text.partition(END)[2]

"""The command `deadheat guide`: which framework is faster for a case, from measured pairs only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from benchcore.errors import UserError
from benchcore.planning.catalog import list_use_cases
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.reports.guide import NOT_MEASURED, GuideFilter, list_answers
from flows.cli import options
from flows.cli.options import option
from flows.cli.printing import print_json, print_line, print_rows

_WORKLOAD = "Show only workloads whose name contains this text (default: all)."
_USE_CASE = "Show only this use case: infer, train, op, ... (default: all)."
_BATCH = "Show only this batch size (default: all)."
_PRECISION = "Show only precisions whose name contains this text, such as bf16 (default: all)."
_DEVICE = "Show only device models whose name contains this text (default: all)."
_LEADS = ("case", "against", "faster", "speedup", "since")
"""Columns of the first table; the others are what each side costs."""


def guide(
    workload: Annotated[str | None, option("--workload", "TEXT", _WORKLOAD)] = None,
    use_case: Annotated[str | None, option("--use-case", "NAME", _USE_CASE)] = None,
    batch: Annotated[int | None, option("--batch", "SIZE", _BATCH, min=1)] = None,
    precision: Annotated[str | None, option("--precision", "TEXT", _PRECISION)] = None,
    device: Annotated[str | None, option("--device", "TEXT", _DEVICE)] = None,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Show which framework is faster for your case, from pairs that count.

    Each answer is the newest pair that counts, among versions that were the newest on their night.
    Pairs of pinned versions are not shown. What is not listed was not measured.
    """
    if use_case is not None and use_case not in (there := list_use_cases()):
        raise UserError(
            f"wanted a use case, got {use_case[:100]!r}; there are {', '.join(there)}; choose one"
        )
    wanted = GuideFilter(
        workload=workload, use_case=use_case, batch=batch, precision=precision, device=device
    )
    rows = list_answers(open_database(open_state(state).database_url), wanted)
    if as_json:
        print_json(rows)
        return
    _print_answers(rows)
    for topic, why in NOT_MEASURED if wanted == GuideFilter() else ():
        print_line(f"not measured: {topic}. {why}")


def _print_answers(rows: list[dict[str, Any]]) -> None:
    # Altair takes a second
    from dashboards.website.guide_pages.guide import describe_answer, list_columns, list_sentences
    from dashboards.website.guide_pages.questions import QUESTION_COLUMNS, list_questions

    known = [each for each in rows if each["counts"]]
    if not known:
        print_line("not measured: no pair that counts matches; measure one with `deadheat compare`")
    for sentence in list_sentences(known):
        print_line(sentence)
    if known:
        print_rows(list_questions(known), QUESTION_COLUMNS, title="By question")
        names = {each["key"]: str(each["name"]) for each in list_columns(known)}
        cells = [describe_answer(each) for each in known]
        shown = [{names[key]: _plain(row.get(key)) for key in names} for row in cells]
        leads = [names[key] for key in _LEADS]
        costs = [name for key, name in names.items() if key not in _LEADS]
        print_rows(shown, leads, title="The newest pair that counts of each case")
        print_rows(shown, [*leads[:2], *costs], title="What each costs (JAX / PyTorch)")
    for each in rows:
        if not each["counts"]:
            case = f"{each['workload']} {each['case_name']}"
            print_line(
                f"not known: {case}, {each['a_arm']} against {each['b_arm']}: {each['reason']}"
            )


def _plain(cell: Any) -> Any:
    """A cell of the page as text; its note is in parentheses."""
    if not isinstance(cell, Mapping):
        return cell
    return f"{cell['text']} ({cell['note']})" if cell.get("note") else cell["text"]

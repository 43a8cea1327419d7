"""The page Operations: where one framework takes more than twice as long, with which versions, what
changed since earlier versions, and a text for upstream. Every release measures them again
(`benchcore.experiments.releases.operations`)."""

from __future__ import annotations

import ast
import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from benchcore import workloads
from benchcore.cell.document import spec_case
from benchcore.experiments.changes.pairs import write_comparison
from benchcore.names import FRAMEWORK_NAMES, name_arm, name_case_in_words
from benchcore.planning.catalog import load_spec
from benchcore.planning.requests import list_settings_of
from benchcore.store.reports.operations import (
    SLOW,
    Answer,
    find_move,
    list_operations,
    measure_slowness,
)
from benchcore.workloads.ops.spec import HOT_BUFFERS, Case
from benchcore.workloads.ops.table import OPERATIONS
from dashboards.formatting import format_count, format_ns, format_speedup
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.guide_pages.guide import describe_since
from dashboards.website.pages import OPERATIONS_PAGE

_TABLED = "ops"
"""The workload whose operations and calls are in tables."""
_COLUMNS = (
    column("case", "Operation"),
    column("slower", "Slower"),
    column("than", "Than"),
    column("factor", "Factor", align="number", help="Step time of the slower over the faster one."),
    column("times", "Step times", align="number"),
    column("versions", "As of", help="The versions that were measured."),
    column("since", "Since", help="The versions with which this lead began."),
)
_MOVES = {
    "entered": "entered the list",
    "left": "left the list",
    "turned": "the other framework is slow now",
    "new": "listed; not measured with earlier versions",
}
_MOVED = (
    column("case", "Operation"),
    column("pair", "Compared"),
    column("move", "Change"),
    column("before", "Before"),
    column("now", "Now"),
)


def operations_page(answers: Sequence[Answer]) -> Block:
    """The content of `operations.html`, from `benchcore.store.reports.guide.list_answers`."""
    known = list_operations(answers)
    rows = [_turn(each) for each in known]
    slow = [each for each in rows if each["is_listed"]]
    others = [each for each in rows if not each["is_listed"]]
    lead = (
        f"Slow: one framework takes more than {SLOW:g} times as long, by the whole interval. "
        "From the newest pairs that count, against PyTorch eager and compiled. Every release of a "
        "framework measures the listed operations again, and others as far as its time allows."
    )
    if not rows:
        return blocks.page(OPERATIONS_PAGE.title, [blocks.text("No operation counts yet.")])
    count = f"One framework is slow in {len(slow)} of {format_count(len(rows), 'measured pair')}."
    caption = "Open pairs below for a text that can be sent to the slower framework's project."
    listed = [
        blocks.text(count, tone="answer"),
        blocks.text(_write_as_of(known)),
        blocks.table("slow", caption, _COLUMNS, [_describe(each) for each in slow]),
        *(blocks.details(_write_title(each), [blocks.code(write_issue(each))]) for each in slow),
        _moves_section(known),
        _others_section(others),
    ]
    return blocks.page(OPERATIONS_PAGE.title, listed, lead=lead)


def _write_as_of(known: Sequence[Answer]) -> str:
    """`As of JAX 0.12.0 and PyTorch 2.15.0. With other versions: 3 of 30 pairs.`"""
    newest = max(known, key=lambda row: row["started_at"])
    as_of = _name_versions(newest)
    others = Counter(_name_versions(each) != as_of for each in known)[True]
    text = f"As of {as_of}, measured last on {newest['started_at']:%Y-%m-%d}."
    return text + (f" With other versions: {others} of {len(known)} pairs." if others else "")


def _name_versions(row: Answer, of: Answer | None = None) -> str:
    """Versions of both sides of a row, or of an earlier pair of the same sides."""
    versions = row if of is None else of
    sides = (f"{FRAMEWORK_NAMES[row[f'{s}_framework']]} {versions[f'{s}_version']}" for s in "ab")
    return " and ".join(sides)


def _moves_section(known: Sequence[Answer]) -> Block:
    """What entered or left the list since earlier versions."""
    moves = [(each, find_move(each)) for each in known]
    rows = [_describe_move(row, _MOVES[move]) for row, move in moves if move in _MOVES]
    num_before = sum(row["earlier"] is not None for row in known)
    text = "No operation was measured with earlier versions yet."
    if num_before:
        text = f"{num_before} of {len(known)} pairs were also measured with earlier versions."
        text += "" if rows else " No pair entered or left the list."
    table = blocks.table("moved", "Each pair against its last one of other versions.", _MOVED, rows)
    return blocks.section("Since earlier versions", [blocks.text(text), table], id="moved")


def _describe_move(row: Answer, words: str) -> dict[str, blocks.Cell]:
    earlier = row["earlier"]
    arms = (name_arm(row[f"{side}_framework"], row[f"{side}_arm"]) for side in "ab")
    return {
        "case": blocks.link(name_case_in_words(row), f"duel.html#run={row['duel_run']}"),
        "pair": f"{' against '.join(arms)}, {row['device_model']}",
        "move": words,
        "before": "" if earlier is None else _describe_slowness(row, earlier),
        "now": _describe_slowness(row, row),
    }


def _describe_slowness(row: Answer, pair: Answer) -> str:
    found = measure_slowness(pair)
    side = FRAMEWORK_NAMES[row[f"{found.slow}_framework"]]
    shown = format_speedup(*found.logs)
    versions = _name_versions(row, pair)
    return f"{side} takes {shown} as long, with {versions} ({pair['started_at']:%Y-%m-%d})"


def _others_section(rows: Sequence[Answer]) -> Block | None:
    caption = "The largest ratio first, whether it is shown or not."
    table = blocks.table("operations", caption, _COLUMNS, [_describe(each) for each in rows])
    return table and blocks.section("All others", [table], id="others")


def _turn(row: Answer) -> dict[str, Any]:
    """The row with its `slow` and its `fast` side, `a` or `b`, their `times`, and the `factor`
    between them."""
    found = measure_slowness(row)
    slow, fast = ("b", "a") if found.slow == "b" else ("a", "b")
    return {
        **row,
        "slow": slow,
        "fast": fast,
        "factor": found.factor,
        "is_listed": found.is_listed,
        "shown": format_speedup(*found.logs),
        "times": [format_ns(row[f"of_{side}"].get("median_step_ns")) for side in (slow, fast)],
    }


def _name_side(row: Answer, side: str) -> str:
    return f"{FRAMEWORK_NAMES[row[f'{side}_framework']]} {row[f'{side}_version']}"


def _describe(row: Answer) -> dict[str, blocks.Cell]:
    slow, fast = row["slow"], row["fast"]
    return {
        "case": {
            **blocks.link(name_case_in_words(row), f"duel.html#run={row['duel_run']}"),
            "note": f"{row['device_model']}, {row['started_at']:%Y-%m-%d}",
        },
        "slower": name_arm(row[f"{slow}_framework"], row[f"{slow}_arm"]),
        "than": name_arm(row[f"{fast}_framework"], row[f"{fast}_arm"]),
        "factor": blocks.number(row["shown"], row["factor"]),
        "times": " / ".join(row["times"]),
        "versions": _name_versions(row),
        "since": describe_since(row),
    }


def _write_title(row: Answer) -> str:
    slow, fast = (FRAMEWORK_NAMES[row[f"{row[side]}_framework"]] for side in ("slow", "fast"))
    times = f"{slow} takes {row['factor']:.1f} times as long as {fast}"
    return f"{_name_operation(row)}: {times} on {row['device_model']}"


def _name_operation(row: Answer) -> str:
    case = _find_tabled(row)
    return name_case_in_words(row) if case is None else case.operation.replace("_", " ")


def _find_tabled(row: Answer) -> Case | None:
    """The case of the workload `ops`; other workloads of single operations have no table."""
    if row["workload"] != _TABLED:
        return None
    return cast(Case, load_spec(_TABLED).cases[spec_case(row["case_name"])])


def write_issue(row: Answer) -> str:
    """A text for the project of the slower framework, in Markdown: the two calls, the inputs, both
    times, and the command that measures them again."""
    slow, fast = row["slow"], row["fast"]
    calls = [_write_call(row, side) for side in (slow, fast)]
    lines = [
        f"# {_write_title(row)}",
        "",
        f"- {_name_side(row, slow)}: {row['times'][0]} a call; {_name_side(row, fast)}: "
        f"{row['times'][1]}.",
        f"- Ratio of times {row['shown']}, 95 % interval over {row['num_starts']} starts of fresh",
        "  processes that took turns; each step was waited for, and both results agree.",
        f"- Device: {row['device_model']}. {_write_inputs(row)}",
        "",
        *(line for call in calls for line in call),
        "Measured by Dead Heat; to measure it again:",
        "",
        f"    {_write_command(row)}",
    ]
    return "\n".join(lines)


def _write_command(row: Answer) -> str:
    a, b = (
        (
            f"{row[f'{side}_framework']}=={row[f'{side}_version']}",
            list_settings_of(row[f"{side}_framework"], row[f"{side}_arm"]),
        )
        for side in "ab"
    )
    case = spec_case(row["case_name"])
    return write_comparison(row["workload"], case, a, b, row["device"], row["site"])


def _write_inputs(row: Answer) -> str:
    case = _find_tabled(row)
    if case is None:
        return _write_case(row["workload"], spec_case(row["case_name"]))
    found = OPERATIONS[case.operation]
    dtype = "bfloat16" if row["precision"] == "bf16" else "float32"
    reals = [f"{name} {shape} {dtype}" for name, shape in found.floats(case.size).items()]
    if found.draws:
        return f"Numbers drawn: {case.size} {dtype}."
    whole = [f"{name} {shape} int32" for name, (shape, _) in found.indices(case.size).items()]
    size = [f"size {case.size}"] if found.takes_size else []
    several = case.buffers > HOT_BUFFERS
    cold = f" The calls take {case.buffers} sets in turn: no second-level cache holds them."
    return f"Inputs: {', '.join([*reals, *whole, *size])}.{cold if several else ''}"


def _write_case(workload: str, name: str) -> str:
    """The inputs of a workload without a table of calls, and what its code reads of the case."""
    spec = load_spec(workload)
    case = spec.cases[name]
    arrays = spec.make_arrays(case, 0)
    named = {**arrays.params, **arrays.inputs}.items()
    given = ", ".join(f"{each} {array.shape} {array.dtype}" for each, array in named)
    fields = dataclasses.asdict(case)
    of_case = ", ".join(f"{each} {value}" for each, value in fields.items() if each != "use_case")
    return f"Inputs: {given}. Case `{workload} {name}`: {of_case}."


def _write_call(row: Answer, side: str) -> list[str]:
    """The source of a side's call; of workloads without a table of calls all of its program."""
    case, framework = _find_tabled(row), row[f"{side}_framework"]
    if case is None:
        source = read_program(row["workload"], framework)
    else:
        source = read_call(framework, case.operation)
    how = name_arm(framework, row[f"{side}_arm"])
    return [f"{how}:", "", *(f"    {line}" for line in source.splitlines()), ""]


def read_program(workload: str, framework: str) -> str:
    """The source of a side of a workload, from its first line after the imports."""
    path = Path(workloads.__file__).parent / workload / f"in_{framework}.py"
    text = path.read_text(encoding="utf-8")
    others = (ast.Expr, ast.Import, ast.ImportFrom, ast.If)
    first = next(each for each in ast.parse(text).body if not isinstance(each, others))
    return "\n".join(text.splitlines()[first.lineno - 1 :])


def read_call(framework: str, operation: str) -> str:
    """The source of an operation's call as it is measured, without importing the framework."""
    path = Path(workloads.__file__).parent / _TABLED / f"in_{framework}.py"
    text = path.read_text(encoding="utf-8")
    module = ast.parse(text)
    functions = {each.name: each for each in module.body if isinstance(each, ast.FunctionDef)}
    for table in [each for each in ast.walk(module) if isinstance(each, ast.Dict)]:
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == operation:
                own = functions.get(value.id) if isinstance(value, ast.Name) else None
                return ast.get_source_segment(text, own or value) or ""
    raise KeyError(f"wanted the call of {operation!r}, but {path} has none")

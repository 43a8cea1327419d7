"""The page Guide: which framework for me, from measured rows that count."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from benchcore.names import (
    FRAMEWORK_NAMES,
    name_arm,
    name_case_in_words,
    name_model,
    name_precision,
    name_rest,
    name_use_case,
)
from benchcore.store.metrics import METRICS
from dashboards.formatting import (
    format_bytes,
    format_count,
    format_factor,
    format_metric,
    format_ns,
    format_seconds,
    format_speedup,
    is_missing,
    to_ratio,
)
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.campaign.voids import shorten
from dashboards.website.guide_pages.questions import questions_section, span_leads, summarise_leads
from dashboards.website.pages import OPERATIONS_PAGE, PAGES
from dashboards.website.pairs import case_key, name_pair
from dashboards.website.reading import checks_section, not_measured_section, reading_section

_TITLE = next(each.title for each in PAGES if each.stem == "guide")
_NEITHER = {"same": "equally fast within the bound", "unknown": "not shown which is faster"}
_ENERGY = next(each for each in METRICS if each.key == "gross_mj")
_MJ_PER_WH = 3.6e6
_MOST_ROWS = 20
"""Rows of a section from which on each model has a fold of its own."""
_COLUMNS = (
    column("case", "Case"),
    column("faster", "Faster", lead=True),
    column(
        "speedup",
        "Speedup",
        align="number",
        lead=True,
        help="Time of PyTorch divided by time of JAX. The link opens the duel.",
    ),
    column("against", "JAX against"),
    column("since", "Since", help="The versions with which this lead began."),
    column("step", "Step, JAX / PyTorch", align="number"),
    column("compile", "Compilation", align="number", help="With empty caches, JAX / PyTorch."),
    column("even", "Pays after", help="Steps until the faster side has made up for compiling."),
    column("memory", "Peak memory", align="number", help="JAX / PyTorch."),
    column("million", "Million items", align="number", help="Time on this device, JAX / PyTorch."),
    column("energy", "Energy of a million", align="number", help="JAX / PyTorch."),
)

_OPTIONAL = (
    column(
        "numpy_step_ns",
        "In NumPy",
        align="number",
        help="The same operation in NumPy, on this host and in float32: its time in each side's "
        "process. JAX / PyTorch.",
    ),
    column(
        "state_bytes_per_device",
        "State per device",
        align="number",
        help="What the first of several devices holds from step to step: its parts of parameters, "
        "statistics and the optimiser's state. JAX / PyTorch.",
    ),
    column(
        "communicated_bytes",
        "Exchanged in a step",
        align="number",
        help="By all devices; each collective counts its whole tensor once. JAX / PyTorch.",
    ),
    column(
        "new_shape_s",
        "First step of a new shape",
        align="number",
        help="With inputs of a shape that is new to it, compilation included. JAX / PyTorch.",
    ),
    column(
        "after_new_shapes",
        "Step after new shapes",
        align="number",
        help="Time of a step of known shapes after new ones over its time before. JAX / PyTorch.",
    ),
)
"""Columns of single operations, of cases on several devices, and of new shapes: shown where a row
has them."""
_FORMS: Mapping[str, Callable[[Any], str]] = {
    "numpy_step_ns": format_ns,
    "new_shape_s": format_seconds,
    "after_new_shapes": format_factor,
}
"""How amounts other than bytes are formatted."""

Answer = Mapping[str, Any]


def guide_page(answers: Sequence[Answer]) -> Block:
    """The content of `guide.html`, from `benchcore.store.reports.guide.list_answers`."""
    known = [each for each in answers if each["counts"]]
    lead = (
        "Each answer is the newest pair that counts, among versions that were the newest on their "
        "night. Pairs of pinned versions are not shown. What is not listed was not measured."
    )
    listed = [
        blocks.text(summarise_answers(known), tone="answer"),
        _link_operations(known),
        questions_section(known),
        _best_section(known),
        *_list_use_cases(known),
        _unknown_section([each for each in answers if not each["counts"]]),
        not_measured_section(),
        reading_section(),
        checks_section(),
    ]
    return blocks.page(_TITLE, listed, lead=lead)


def _link_operations(known: Sequence[Answer]) -> Block | None:
    if not any(each["use_case"] == "op" for each in known):
        return None
    link = blocks.link("Operations", OPERATIONS_PAGE.file)
    return blocks.text(link, ": where one framework takes more than twice as long.", tone="aside")


def summarise_answers(known: Sequence[Answer]) -> str:
    """`Of 3 pairs, PyTorch is faster in 2, JAX is faster in 1.`"""
    if not known:
        return "Not known yet: no pair of versions that were the newest on their night counts."
    wins = Counter(FRAMEWORK_NAMES[row["faster"]] for row in known if row["faster"])
    listed = [f"{name} is faster in {count}" for name, count in wins.most_common()]
    if neither := len(known) - wins.total():
        listed.append(f"neither is shown to be faster in {neither}")
    return f"Of {format_count(len(known), 'pair')}, {', '.join(listed)}."


def list_sentences(known: Sequence[Answer]) -> list[str]:
    """One per model, use case, precision, device and pair of settings, from its measured rows."""
    groups = _group_settings(known)
    return [
        f"{model}, {use_case}, {precision}, on {device}, {arms}: {_write_answer(rows)}."
        for (model, use_case, precision, device, arms), rows in groups.items()
    ]


def _best_section(known: Sequence[Answer]) -> Block | None:
    """Per setting, who is faster at which batch."""
    if not known:
        return None
    return blocks.section(
        "In short", _fold("best", known, _best_table, total=len(known)), id="best"
    )


def _fold(
    name: str,
    known: Sequence[Answer],
    draw: Callable[[str, Sequence[Answer]], Block | None],
    *,
    total: int,
) -> list[Block | None]:
    """One table, or on a page of many answers one for each model, behind a sentence."""
    families = defaultdict[str, list[Answer]](list)
    for row in known:
        families[row["workload"]].append(row)
    if total <= _MOST_ROWS or len(families) == 1:
        return [draw(name, known)]
    return [
        blocks.details(
            f"{name_model(workload)}: {summarise_leads(families[workload])}.",
            [draw(f"{name}-{workload}", families[workload])],
        )
        for workload in sorted(families, key=name_model)
    ]


def _best_table(name: str, known: Sequence[Answer]) -> Block | None:
    keys = ("model", "use", "precision", "device", "against")
    groups = _group_settings(known)
    rows = [
        {**dict(zip(keys, key, strict=True)), "answer": _write_answer(rows)}
        for key, rows in groups.items()
    ]
    columns = (
        column("model", "Model"),
        column("answer", "Faster", lead=True),
        column("use", "Use case", lead=True),
        column("against", "Compared"),
        column("precision", "Precision"),
        column("device", "Device"),
    )
    several = any(len({row["batch"] for row in rows}) > 1 for rows in groups.values())
    caption = "Over all batches that were measured." if several else "Which framework is faster."
    return blocks.table(name, caption, columns, rows)


def _group_settings(known: Sequence[Answer]) -> dict[tuple[str, ...], list[Answer]]:
    """By model, use case, precision, device and pair of settings."""
    groups = defaultdict[tuple[str, ...], list[Answer]](list)
    for row in known:
        model = " ".join(filter(None, (name_model(row["workload"]), name_rest(row))))
        named = (model, name_use_case(row["use_case"]))
        setting = (name_precision(row["precision"]), str(row["device_model"]), _name_arms(row))
        groups[(*named, *setting)].append(row)
    return {key: groups[key] for key in sorted(groups)}


def _write_answer(rows: Sequence[Answer]) -> str:
    found = defaultdict[str, list[Answer]](list)
    for row in sorted(rows, key=lambda row: row["batch"]):
        found[row["faster"] or row["verdict"]].append(row)
    order = ("jax", "torch", "same", "unknown")
    parts = [_describe_lead(each, found[each]) for each in order if found[each]]
    return "; ".join(parts)


def _describe_lead(side: str, rows: Sequence[Answer]) -> str:
    batches = ", ".join(str(each) for each in sorted({row["batch"] for row in rows}))
    where = f"at batch {batches}"
    if side not in FRAMEWORK_NAMES:
        return f"{_NEITHER[side]} {where}"
    return f"{FRAMEWORK_NAMES[side]} {where}, {span_leads(rows)} as fast"


def _name_arms(row: Answer) -> str:
    arms = (name_arm(row[f"{side}_framework"], row[f"{side}_arm"]) for side in "ab")
    return " against ".join(arms)


def _list_use_cases(known: Sequence[Answer]) -> list[Block | None]:
    groups = defaultdict[str, list[Answer]](list)
    for row in known:
        groups[row["use_case"]].append(row)
    return [_use_case_section(each, groups[each], len(known)) for each in sorted(groups)]


def _use_case_section(use_case: str, known: Sequence[Answer], total: int) -> Block | None:
    title = name_use_case(use_case)
    shown = _fold(f"guide-{use_case}", sorted(known, key=_by_model), _case_table, total=total)
    return blocks.section(title[:1].upper() + title[1:], shown, id=f"use-{use_case}")


def _case_table(name: str, known: Sequence[Answer]) -> Block | None:
    caption = "The newest pair that counts of each case, device and pair of settings."
    rows = [describe_answer(row) for row in known]
    columns = list_columns(known)
    rows = [{**{each["key"]: "" for each in columns}, **row} for row in rows]
    if all(each["key"] != "energy" for each in columns):
        caption = f"{caption} Energy was not measured."
    return blocks.table(name, caption, columns, rows)


def list_columns(known: Sequence[Answer]) -> list[Block]:
    """The columns of a table of these answers: energy and what only some cases have are shown where
    a row has them."""
    sides = [row[side] for row in known for side in ("of_a", "of_b")]
    amounts = {"energy": "gross_mj"} | {each["key"]: each["key"] for each in _OPTIONAL}
    return [
        each
        for each in (*_COLUMNS, *_OPTIONAL)
        if each["key"] not in amounts
        or any(not is_missing(side.get(amounts[each["key"]])) for side in sides)
    ]


def _by_model(row: Answer) -> tuple[Any, ...]:
    return row["workload"], row["device_model"], row["precision"], row["batch"], row["b_arm"]


def describe_answer(row: Answer) -> dict[str, blocks.Cell]:
    """A row of the table; missing values are `not measured`."""
    state = {"case": case_key(row), "pair": name_pair(row["a_arm"], row["b_arm"], None)}
    speedup = format_speedup(row["log_ratio"], row["low"], row["high"])
    speedup = speedup.replace(" to ", "\u00a0to\u00a0")  # a narrow column breaks before it only
    of_a, of_b = row["of_a"], row["of_b"]
    shared = {
        each["key"]: _both(of_a, of_b, each["key"], _FORMS.get(each["key"], format_bytes))
        for each in _OPTIONAL
        if any(not is_missing(side.get(each["key"])) for side in (of_a, of_b))
    }
    return {
        "case": {
            **blocks.link(name_case_in_words(row), f"series.html#{urlencode(state)}"),
            "note": f"{row['device_model']}, {row['started_at']:%Y-%m-%d}",
        },
        "faster": FRAMEWORK_NAMES.get(
            row["faster"], "equal" if row["verdict"] == "same" else "not shown"
        ),
        "speedup": blocks.number(
            speedup, to_ratio(row["log_ratio"]), href=f"duel.html#run={row['duel_run']}"
        ),
        "against": name_arm(row["b_framework"], row["b_arm"]),
        "since": describe_since(row),
        "step": _both(of_a, of_b, "median_step_ns", format_ns),
        "compile": _both(of_a, of_b, "cold_compile_s", _format_compilation),
        "even": describe_break_even(row["break_even"]),
        "memory": _both(of_a, of_b, _choose_memory(of_a, of_b), format_bytes),
        "million": _both(of_a, of_b, "items_per_s", _format_million),
        "energy": _format_energy(row),
        **shared,
    }


def describe_since(row: Answer) -> str:
    """`JAX 0.12.0, PyTorch 2.15.0 (2026-11-02)`, or that it was so from the first night on."""
    since = row["since"]
    if since is None:
        return ""
    names = [FRAMEWORK_NAMES.get(row[f"{side}_framework"], "") for side in "ab"]
    versions = f"{names[0]} {since['a_version']}, {names[1]} {since['b_version']}"
    when = f"{versions} ({since['started_at']:%Y-%m-%d})"
    return f"the first night, {since['started_at']:%Y-%m-%d}" if since["always"] else when


def describe_break_even(steps: int | None) -> str:
    """`1,200 steps`, `at once` where the faster side compiles no longer."""
    if steps is None:
        return "not known"
    return "at once" if steps == 0 else f"{steps:,} steps"


def _choose_memory(a: Answer, b: Answer) -> str:
    """The allocator's peak where both sides report it, else the process's. Never mixed."""
    both = all(not is_missing(each.get("allocator_peak_bytes")) for each in (a, b))
    return "allocator_peak_bytes" if both else "process_peak_bytes"


def _both(a: Answer, b: Answer, key: str, form: Any) -> str:
    return _join(*(form(each.get(key)) for each in (a, b)))


def _join(a: str, b: str) -> str:
    """One below the other where there is no room beside it."""
    a, b = (each.replace(" ", "\u00a0") for each in (a, b))
    return a if a == b else f"{a} / {b}"


def _format_compilation(seconds: float | None) -> str:
    return "none" if seconds == 0 else format_seconds(seconds)


def _format_million(per_s: float | None) -> str:
    return format_seconds(None if is_missing(per_s) else 1e6 / float(str(per_s)))


def _format_energy(row: Answer) -> str:
    sides = (row["of_a"], row["of_b"])
    return _join(*(_energy_of_million(each.get("gross_mj"), row["batch"]) for each in sides))


def _energy_of_million(step_mj: float | None, batch: int) -> str:
    if is_missing(step_mj):
        return format_metric(_ENERGY, None)
    watt_hours = float(str(step_mj)) / batch * 1e6 / _MJ_PER_WH
    return f"{watt_hours / 1000:.3g} kWh" if watt_hours >= 1000 else f"{watt_hours:.3g} Wh"


def _unknown_section(unknown: Sequence[Answer]) -> Block | None:
    rows = [
        {
            "case": blocks.link(name_case_in_words(row), f"duel.html#run={row['duel_run']}"),
            "against": f"{_name_arms(row)}, {row['device_model']}",
            "why": shorten(row["reason"]),
        }
        for row in unknown
    ]
    columns = (column("case", "Case"), column("against", "Compared"), column("why", "Why"))
    caption = "Measured, but no pair ever counted."
    table = blocks.table("guide-unknown", caption, columns, rows)
    return table and blocks.section("Not known", [table], id="unknown")

"""The Guide's table by question: what people ask who choose a framework, from measured rows only.

A row is there if a pair that counts answers it, and goes with the last one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchcore.names import FRAMEWORK_NAMES
from benchcore.planning.catalog import count_devices
from benchcore.store.metrics import METRICS
from benchcore.verdict.samples import swap_sides
from dashboards.formatting import format_count, format_factor, format_size, is_missing
from dashboards.website import blocks
from dashboards.website.blocks import Block, column

Answer = Mapping[str, Any]
QUESTION_COLUMNS = ("question", "answer", "device")
_SMALLEST = {each.key: each.scale.smallest for each in METRICS if each.scale is not None}
"""The smallest change of an amount that matters: what differs less is equal."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What people ask, and which pairs answer it: by the time of a step, or by an amount of both
    sides, the first of `amounts` that both have."""

    topic: str
    fits: Callable[[Answer], bool] = lambda row: True
    amounts: tuple[str, ...] = ()


def _is_eager(row: Answer, side: str) -> bool:
    return str(row[f"{side}_arm"]).partition("-")[2].startswith("eager")


def _is_compiled(row: Answer) -> bool:
    return not (_is_eager(row, "a") or _is_eager(row, "b"))


QUESTIONS = (
    Question(topic="Inference", fits=lambda row: row["use_case"] == "infer"),
    Question(topic="Training", fits=lambda row: row["use_case"] == "train"),
    Question(topic="Per-sample gradients", fits=lambda row: row["use_case"] == "per_sample_grad"),
    Question(topic="Many models at once", fits=lambda row: row["workload"] == "ensemble"),
    Question(topic="Single operations", fits=lambda row: row["use_case"] == "op"),
    Question(topic="Fused kernels", fits=lambda row: row["workload"] == "kernels"),
    Question(topic="Several shapes", fits=lambda row: row["workload"] == "recompile"),
    Question(
        topic="Several devices",
        fits=lambda row: count_devices(row["workload"], row["case_name"]) > 1,
    ),
    Question(topic="Both compiled", fits=_is_compiled),
    Question(
        topic="JAX compiled, PyTorch eager",
        fits=lambda row: not _is_eager(row, "a") and _is_eager(row, "b"),
    ),
    Question(
        topic="Both eager, as NumPy is used",
        fits=lambda row: _is_eager(row, "a") and _is_eager(row, "b"),
    ),
    Question(topic="Compile time", fits=_is_compiled, amounts=("cold_compile_s",)),
    Question(topic="First step of a new shape", amounts=("new_shape_s",)),
    Question(topic="Peak memory", amounts=("allocator_peak_bytes", "process_peak_bytes")),
    Question(topic="Host dispatch", fits=_is_compiled, amounts=("host_dispatch_ns",)),
    Question(topic="State that a device holds", amounts=("state_bytes_per_device",)),
    Question(topic="Bytes that devices exchange", amounts=("communicated_bytes",)),
)
"""In this order. A pair may answer several. A profiler can't separate an eager side's work from its
dispatch on a CPU."""


def list_questions(known: Sequence[Answer]) -> list[dict[str, str]]:
    """One row per question and device that some of these answers are about."""
    devices = sorted({str(row["device_model"]) for row in known})
    return [
        {"question": question.topic, "answer": answer, "device": device}
        for question in QUESTIONS
        for device in devices
        if (answer := _answer(question, [row for row in known if row["device_model"] == device]))
    ]


def questions_section(known: Sequence[Answer]) -> Block | None:
    """The table, for the page."""
    columns = (
        column("question", "Question"),
        column("answer", "Answer", lead=True),
        column("device", "Device"),
    )
    caption = (
        "Each answer counts the pairs below. Steps have intervals. Amounts, from compile time on, "
        "have none: a difference that is too small to matter counts as none."
    )
    table = blocks.table("questions", caption, columns, list_questions(known))
    return table and blocks.section("By question", [table], id="questions")


def _answer(question: Question, rows: Sequence[Answer]) -> str:
    rows = [row for row in rows if question.fits(row)]
    if question.amounts:
        return _summarise_amounts(rows, question.amounts)
    return summarise_leads(rows) if rows else ""


def summarise_leads(rows: Sequence[Answer]) -> str:
    """`JAX is 2.1x to 2.4x as fast in 2 pairs`; `PyTorch is faster in 6 of 8 pairs, JAX in 2`."""
    counted = Counter(row["faster"] for row in rows if row["faster"])
    if not counted:
        return f"neither is shown to be faster in {format_count(len(rows), 'pair')}"
    (first, count), *others = counted.most_common()
    if count == len(rows):
        times = span_leads(rows)
        return f"{FRAMEWORK_NAMES[first]} is {times} as fast in {format_count(count, 'pair')}"
    rest = "".join(f", {FRAMEWORK_NAMES[side]} in {number}" for side, number in others)
    return f"{FRAMEWORK_NAMES[first]} is faster in {count} of {len(rows)} pairs{rest}"


def span_leads(rows: Sequence[Answer]) -> str:
    """`1.2x to 3x`: the smallest and the largest lead of the faster side."""
    ordered = sorted(rows, key=lambda row: abs(row["log_ratio"]))
    low, high = (_format_lead(row) for row in (ordered[0], ordered[-1]))
    return low if low == high else f"{low} to {high}"


def _format_lead(row: Answer) -> str:
    """How many times as fast the faster side is."""
    logs = (row["log_ratio"], row["low"], row["high"])
    return format_size(*(logs if row["log_ratio"] >= 0 else swap_sides(*logs)))


def _summarise_amounts(rows: Sequence[Answer], keys: Sequence[str]) -> str:
    """`JAX needs less in 3 of 4 pairs, PyTorch in 1; JAX / PyTorch 0.25x to 2x, median 0.5x`."""
    pairs = [found for row in rows if (found := _read_ratio(row, keys)) is not None]
    if not pairs:
        return ""
    less = Counter(side for side, _ in pairs if side).most_common()
    total = format_count(len(pairs), "pair")
    leads = f"neither needs less in {total}"
    if less:
        (first, count), *others = less
        leads = f"{FRAMEWORK_NAMES[first]} needs less in {count} of {total}"
        leads += "".join(f", {FRAMEWORK_NAMES[side]} in {number}" for side, number in others)
    ratios = sorted(ratio for _, ratio in pairs)
    low, middle, high = map(format_factor, (ratios[0], median(ratios), ratios[-1]))
    spread = low if low == high else f"{low} to {high}, median {middle}"
    return f"{leads}; JAX / PyTorch {spread}"


def _read_ratio(row: Answer, keys: Sequence[str]) -> tuple[str | None, float] | None:
    """The framework with less, if the difference matters, and the ratio of side a to b."""
    for key in keys:
        a, b = (row[side].get(key) for side in ("of_a", "of_b"))
        if is_missing(a) or is_missing(b) or not (a > 0 and b > 0):
            continue
        differs = abs(math.log(a / b)) > math.log1p(_SMALLEST[key])
        return row["a_framework" if a < b else "b_framework"] if differs else None, a / b
    return None

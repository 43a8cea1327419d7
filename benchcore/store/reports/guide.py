"""Which framework is faster for each case: its newest row that counts, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, bindparam, or_, select
from sqlalchemy.exc import NoResultFound

from benchcore.store.frames.contenders import amount_frame
from benchcore.store.frames.reading import Runs
from benchcore.store.metric_values import Amounts
from benchcore.store.models import DuelRun, PairRatio, skip_index
from benchcore.store.reports.guide_groups import (
    A_LEADS,
    ARMS,
    B_LEADS,
    CASE,
    COUNTS,
    GIVEN,
    KIND,
    WANTED,
    GuideGroup,
    equal_case,
    list_groups,
)

_VERSIONS = ("a_version", "b_version")
_SHOWN = (
    *("campaign", "id", "started_at", "workload", "case_name", "use_case", "batch", "precision"),
    *("track", "checkpoint", "device_model", "device_fingerprint", "site"),
)
_JUDGED = ("a", "b", "a_framework", "b_framework", *_VERSIONS, "num_starts", *ARMS)
_OF_PAIR = (*_JUDGED, "reason", "log_ratio", "low", "high", "verdict")
_AMOUNTS = (
    *("median_step_ns", "items_per_s", "latency_p50_ns", "cold_compile_s"),
    *("allocator_peak_bytes", "process_peak_bytes", "gross_mj"),
    *("state_bytes_per_device", "communicated_bytes", "numpy_step_ns"),
    *("new_shape_s", "after_new_shapes", "host_dispatch_ns"),
)
_AT_ONCE = 500
"""Duel runs of one query: SQLite limits its variables."""
_NEVER_COMPILED = "torch-eager"
"""Arms that begin so. JAX's eager operations are compiled, each for itself."""
NOT_MEASURED = (
    (
        "Pipeline parallelism",
        "PyTorch has it in its own library (torch.distributed.pipelining). JAX doesn't, but "
        "documents how to write it by hand.",
    ),
    (
        "Expert parallelism",
        "Neither has it in its own library. Both have the exchange between devices that it needs.",
    ),
    (
        "Kernels in CUDA",
        "Both sides can call the same kernel, but not in the same way: PyTorch as one of its "
        "operators, JAX through its foreign function interface. These calls are not compared.",
    ),
    (
        "Kernels in Triton and Pallas on a CPU",
        "On a CPU they run in interpreters, which show that they are correct, but not how fast "
        "they are. This project has not run them on a GPU yet.",
    ),
    (
        "Dynamic shapes in JAX",
        "JAX compiles each shape separately, even for a function that was exported for any shape. "
        "So PyTorch's dynamic shapes are compared with that, and with padding on both sides.",
    ),
    (
        "Libraries for training",
        "They choose the model and the data path too, so no proof could show that both sides do "
        "the same. Scripts written by hand are compared.",
    ),
    (
        "Modules in JAX",
        "JAX has none in its own library: its sides are functions of named arrays, or modules of "
        "other libraries. PyTorch's MLP can be compared as modules and as functions.",
    ),
    ("Prototyping and debugging", "An opinion: there is nothing to time."),
    ("Community", "An opinion: there is nothing to time."),
)
"""What people ask about both frameworks and no row answers, with the reason."""


@dataclass(frozen=True, kw_only=True)
class GuideFilter:
    """The rows that a reader wants; None = all. Texts match a part, in upper or lower case."""

    workload: str | None = None
    use_case: str | None = None
    batch: int | None = None
    precision: str | None = None
    device: str | None = None

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether the reader wants this row."""
        exact = all(
            wanted is None or row[key] == wanted
            for key, wanted in (("use_case", self.use_case), ("batch", self.batch))
        )
        texts = (
            ("workload", self.workload),
            ("precision", self.precision),
            ("device_model", self.device),
        )
        return exact and all(
            wanted is None or wanted.lower() in str(row[key]).lower() for key, wanted in texts
        )


def list_answers(
    engine: Engine,
    wanted: GuideFilter | None = None,
    *,
    campaigns: Collection[str] | None = None,
    remembered: Iterable[Mapping[str, Any]] | None = None,
    amounts: Amounts | None = None,
) -> list[dict[str, Any]]:
    """One row per case, device and pair of arms of the newest versions; only cases that one of the
    `campaigns` measured, if they are given. `remembered` are earlier rows: of their cases fewer
    nights are read, and every row has its `past` to remember. `amounts` are those that were read
    already, from `pick_amounts`.

    A row is the newest pair that counts. It has `faster` (a framework, or None) and `since` (when
    and with which versions this lead began). It has both sides' amounts as `of_a` and `of_b`, and
    `break_even`. Of single operations it also has `earlier`, the newest pair that counts of earlier
    versions, or None. If no pair ever counted, `counts` is false, and `reason` is the newest one's.
    """
    try:
        rows = _read_answers(engine, campaigns, remembered)
    except NoResultFound:
        if not remembered:
            raise
        rows = _read_answers(engine, campaigns, ())  # an earlier night counts no more
    rows = [row for row in rows if wanted is None or wanted.fits(row)]
    shown = _read_amounts(engine, rows, amounts or {})
    for row in rows:
        row["of_a"], row["of_b"] = (shown.get((row["duel_run"], row[side]), {}) for side in "ab")
        for side in "ab":
            if row[f"{side}_arm"].startswith(_NEVER_COMPILED) and row[f"of_{side}"]:
                row[f"of_{side}"] = {**row[f"of_{side}"], "cold_compile_s": 0.0}
        row["break_even"] = find_break_even(row)
    return sort_answers(rows)


def _read_answers(
    engine: Engine,
    campaigns: Collection[str] | None,
    remembered: Iterable[Mapping[str, Any]] | None,
) -> list[dict[str, Any]]:
    with engine.connect() as connection:  # a session takes a quarter longer
        groups = list_groups(connection, campaigns, remembered)
        known = {} if campaigns is None else _read_pairs(connection, campaigns)
        rows = [_read_answer(connection, group, known) for group in groups]
    if remembered is None:
        return rows
    return [{**row, "past": each.past} for row, each in zip(rows, groups, strict=True)]


def sort_answers(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `list_answers` in its order."""
    return sorted(rows, key=lambda row: tuple(str(row[key]) for key in CASE[:2] + ARMS))


def name_case_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The case and device of a row."""
    return tuple(row[key] for key in CASE)


def _select_pair(order: Any, *conditions: ColumnElement[bool]) -> Any:
    """The first pair, in this order, of the group and with the bounds that are given to the query
    when it runs. It is made once: to make it takes longer than to run it."""
    same = [*equal_case(GIVEN), skip_index(PairRatio.kind) == KIND]
    same += [skip_index(getattr(PairRatio, key)) == bindparam(key) for key in ARMS]
    return _select(*same, *conditions).order_by(order).limit(1)


def _select(*conditions: ColumnElement[bool]) -> Select[Any]:
    duel = [getattr(DuelRun, key) for key in (*_SHOWN, "device")]
    query = select(*duel, *(getattr(PairRatio, key) for key in _OF_PAIR))
    query = query.join(PairRatio, PairRatio.duel_run == DuelRun.id)
    return query.where(*WANTED, *conditions)


# A bound of the time lets the database read the case's nights by their index, in order.
_FROM = DuelRun.started_at >= bindparam("start")
_AFTER = DuelRun.started_at > bindparam("start")
_NEWEST_FIRST = DuelRun.started_at.desc()
_OTHERS = or_(*(getattr(PairRatio, key) != bindparam(key) for key in _VERSIONS))
_NEWEST = _select_pair(_NEWEST_FIRST, _FROM)
_NEWEST_COUNTED = _select_pair(_NEWEST_FIRST, _FROM, COUNTS)
_EARLIER = _select_pair(_NEWEST_FIRST, DuelRun.started_at < bindparam("end"), COUNTS, _OTHERS)
_SINCE = {
    (leads, is_first): _select_pair(
        DuelRun.started_at, _FROM if is_first else _AFTER, {"a": A_LEADS, "b": B_LEADS}[leads]
    )
    for leads in "ab"
    for is_first in (True, False)
}
"""The pair with which side a's or b's lead began: the first of all, or after the other's last."""


_Pairs = Mapping[tuple[Any, ...], Row[Any]]
"""By case, arms, time, and whether they count."""


def _read_pairs(connection: Connection, campaigns: Collection[str]) -> _Pairs:
    """The pairs of these campaigns. Most are the newest ones of their groups, and one query for all
    takes a tenth of the time of one for each."""
    query = _select(skip_index(PairRatio.kind) == KIND).add_columns(COUNTS.label("is_counted"))
    query = query.where(DuelRun.campaign.in_(campaigns)).order_by(_NEWEST_FIRST)
    found = dict[tuple[Any, ...], Row[Any]]()
    for row in connection.execute(query):
        case, arms = (tuple(getattr(row, key) for key in keys) for keys in (CASE, ARMS))
        found.setdefault((case, arms, row.started_at, bool(row.is_counted)), row)
    return found


def _read_answer(connection: Connection, group: GuideGroup, known: _Pairs) -> dict[str, Any]:
    same, times = group.same, group.times
    counts = times["counted"] is not None
    query, start = (_NEWEST_COUNTED, times["counted"]) if counts else (_NEWEST, times["last"])
    pair = known.get((group.case, group.arms, start, counts))
    if pair is None:
        pair = connection.execute(query, {**same, "start": start}).one()
    row = {key: getattr(pair, key) for key in _SHOWN if key != "id"}
    row |= {key: getattr(pair, key) for key in _JUDGED} | {"device": pair.device["name"]}
    row |= {"duel_run": pair.id, "counts": counts, "reason": "" if counts else pair.reason}
    row |= {key: getattr(pair, key) if counts else None for key in ("log_ratio", "low", "high")}
    row["verdict"] = pair.verdict if counts else "unknown"
    leads = counts and pair.verdict == "different"
    a_leads = leads and pair.log_ratio > 0
    row["faster"] = (pair.a_framework if a_leads else pair.b_framework) if leads else None
    row["since"] = _find_since(connection, group, "a" if a_leads else "b") if leads else None
    asks = counts and pair.use_case == "op"
    row["earlier"] = _find_earlier(connection, same, pair) if asks else None
    return row


def _find_earlier(
    connection: Connection, same: Mapping[str, Any], pair: Row[Any]
) -> dict[str, Any] | None:
    """The newest pair before this one in which a side had another version."""
    versions = {key: getattr(pair, key) for key in _VERSIONS}
    found = connection.execute(_EARLIER, {**same, **versions, "end": pair.started_at}).first()
    shown = ("started_at", "log_ratio", "low", "high", *_VERSIONS)
    return None if found is None else {key: getattr(found, key) for key in shown}


def _find_since(connection: Connection, group: GuideGroup, leads: str) -> dict[str, Any]:
    """The first pair with this lead after the other side's last one."""
    lost = group.times["b_led" if leads == "a" else "a_led"]
    start = group.times["first"] if lost is None else lost
    found = connection.execute(_SINCE[leads, lost is None], {**group.same, "start": start}).one()
    return {
        **{key: getattr(found, key) for key in (*_VERSIONS, "started_at")},
        "always": lost is None,
    }


def pick_amounts(contenders: Iterable[Mapping[str, Any]]) -> Amounts:
    """What answers show of contenders, from rows that were read: by duel run and name."""
    return {
        (row["duel_run"], row["name"]): {key: _to_number(row[key]) for key in _AMOUNTS}
        for row in contenders
    }


def _read_amounts(engine: Engine, rows: Sequence[Mapping[str, Any]], known: Amounts) -> Amounts:
    """The amounts of these rows' contenders; what is not `known` is read."""
    campaigns = {row["campaign"] for row in rows if row["counts"]}
    wanted = {row["duel_run"] for row in rows if row["campaign"] in campaigns}
    found = {contender: each for contender, each in known.items() if contender[0] in wanted}
    runs = sorted(wanted - {run for run, _ in found})
    for first in range(0, len(runs), _AT_ONCE):
        part = Runs(runs[first : first + _AT_ONCE])
        frame = amount_frame(engine, part, _AMOUNTS).loc[:, ["duel_run", "name", *_AMOUNTS]]
        found |= pick_amounts(frame.to_dict("records"))
    return found


def _to_number(value: Any) -> float | None:
    return None if value is None or value != value else float(value)


def find_break_even(row: Mapping[str, Any]) -> int | None:
    """After how many steps the faster side has also made up for its longer compilation; 0 = it
    compiles no longer. None = no side is faster, or a compilation was not measured. Eager PyTorch
    has none: 0 s."""
    if row["faster"] is None:
        return None
    sides = [row["of_a"], row["of_b"]]
    fast, slow = sides if row["log_ratio"] > 0 else reversed(sides)
    compiled = [each.get("cold_compile_s") for each in (fast, slow)]
    steps = [each.get("median_step_ns") for each in (fast, slow)]
    if None in compiled or None in steps or steps[0] >= steps[1]:
        return None
    lost_s = max(0.0, compiled[0] - compiled[1])
    return math.ceil(lost_s * 1e9 / (steps[1] - steps[0]))

"""Which framework is faster for each case: its newest row that counts, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from sqlalchemy import ColumnElement, Engine, Row, and_, bindparam, case, func, or_, select
from sqlalchemy.orm import Session

from benchcore.store.frames.contenders import amount_frame
from benchcore.store.frames.reading import Runs
from benchcore.store.models import IS_NO_CALIBRATION_RUN, DuelRun, PairRatio, skip_index
from benchcore.store.series import ROLLING
from benchcore.verdict.duel.physics import SENTINELS

_CASE = ("workload", "case_name", "track", "device_fingerprint", "checkpoint")
_ARMS = ("a_arm", "b_arm")
_VERSIONS = ("a_version", "b_version")
_SHOWN = (
    *("campaign", "id", "started_at", "workload", "case_name", "use_case", "batch", "precision"),
    *("track", "checkpoint", "device_model", "device_fingerprint", "site"),
)
_JUDGED = ("a", "b", "a_framework", "b_framework", *_VERSIONS, "num_starts", *_ARMS)
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
        "A kernel in CUDA is the same on both sides.",
    ),
    (
        "Kernels in Triton and Pallas on a CPU",
        "On a CPU only interpreters run them, which show that they are right, but not how fast "
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
NO_FRAMEWORKS = (*SENTINELS, "noop", "digest", "faulty")
"""Workloads that measure the machine or our own code, not a framework."""
_WANTED = (
    IS_NO_CALIBRATION_RUN,
    PairRatio.a_role.in_(ROLLING),
    PairRatio.b_role.in_(ROLLING),
    DuelRun.track.in_(("default", "tuned")),
    DuelRun.workload.not_in(NO_FRAMEWORKS),
)
_KIND = "cross_framework"
_COUNTS = and_(PairRatio.counts, PairRatio.log_ratio.is_not(None))
_A_LEADS = and_(_COUNTS, PairRatio.verdict == "different", PairRatio.log_ratio > 0)
_B_LEADS = and_(_COUNTS, PairRatio.verdict == "different", PairRatio.log_ratio < 0)


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
) -> list[dict[str, Any]]:
    """One row per case, device and pair of arms of the newest versions; only cases that one of the
    `campaigns` measured, if they are given.

    Its newest pair that counts, with `faster` (a framework, or None), `since` (when and with
    which versions this lead began), the amounts of both sides as `of_a` and `of_b`, `break_even`,
    and of single operations `earlier`: the newest pair that counts of earlier versions, or
    None. `counts` is false where no pair ever counted; `reason` is then the newest one's.
    """
    with Session(engine) as session:
        groups = _list_groups(session, campaigns)
        rows = [_read_answer(session, group) for group in groups]
    rows = [row for row in rows if wanted is None or wanted.fits(row)]
    amounts = _read_amounts(engine, rows)
    for row in rows:
        row["of_a"], row["of_b"] = (amounts.get((row["duel_run"], row[side]), {}) for side in "ab")
        for side in "ab":
            if row[f"{side}_arm"].startswith(_NEVER_COMPILED) and row[f"of_{side}"]:
                row[f"of_{side}"]["cold_compile_s"] = 0.0
        row["break_even"] = find_break_even(row)
    return sort_answers(rows)


def sort_answers(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `list_answers` in its order."""
    return sorted(rows, key=lambda row: tuple(str(row[key]) for key in _CASE[:2] + _ARMS))


def name_case_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The case and device of a row."""
    return tuple(row[key] for key in _CASE)


def _list_groups(session: Session, campaigns: Collection[str] | None) -> list[Row[Any]]:
    """Of campaigns, one query for all their cases: it reads the nights of these alone."""
    if campaigns is None:
        return list(session.execute(_select_groups(DuelRun).where(PairRatio.kind == _KIND)))
    columns = [getattr(DuelRun, key) for key in _CASE]
    cases = select(*columns).where(DuelRun.campaign.in_(campaigns)).distinct().cte("wanted_cases")
    query = _select_groups(cases.join(DuelRun, and_(*_equal(cases.c))))
    return list(session.execute(query.where(skip_index(PairRatio.kind) == _KIND)))


def _equal(case: Any) -> list[ColumnElement[bool]]:
    """The duel run is of this case. Only a checkpoint may be null: for a comparison of nulls
    PostgreSQL uses no index."""
    same = [getattr(DuelRun, key) == getattr(case, key) for key in _CASE if key != "checkpoint"]
    return [*same, DuelRun.checkpoint.is_not_distinct_from(case.checkpoint)]


def _select_groups(source: Any) -> Any:
    columns = [*(getattr(DuelRun, key) for key in _CASE), *(getattr(PairRatio, k) for k in _ARMS)]
    newest = [
        func.max(case((condition, DuelRun.started_at))).label(name)
        for name, condition in (("counted", _COUNTS), ("a_led", _A_LEADS), ("b_led", _B_LEADS))
    ]
    ends = (func.min(DuelRun.started_at).label("first"), func.max(DuelRun.started_at).label("last"))
    query = select(*columns, *ends, *newest).select_from(source)
    return _join(query).where(*_WANTED).group_by(*columns)


def _join(query: Any) -> Any:
    return query.join(PairRatio, PairRatio.duel_run == DuelRun.id)


def _select_pair(order: Any, *conditions: ColumnElement[bool]) -> Any:
    """The first pair, in this order, of the group and with the bounds that are given to the query
    when it runs. It is made once: to make it takes longer than to run it."""
    given = SimpleNamespace(**{key: bindparam(key) for key in (*_CASE, *_ARMS)})
    same = [*_equal(given), skip_index(PairRatio.kind) == _KIND]
    same += [skip_index(getattr(PairRatio, key)) == getattr(given, key) for key in _ARMS]
    duel = [getattr(DuelRun, key) for key in (*_SHOWN, "device")]
    query = _join(select(*duel, *(getattr(PairRatio, key) for key in _OF_PAIR)))
    return query.where(*_WANTED, *same, *conditions).order_by(order).limit(1)


# A bound of the time lets the database read the case's nights by their index, in order.
_FROM = DuelRun.started_at >= bindparam("start")
_AFTER = DuelRun.started_at > bindparam("start")
_NEWEST_FIRST = DuelRun.started_at.desc()
_OTHERS = or_(*(getattr(PairRatio, key) != bindparam(key) for key in _VERSIONS))
_NEWEST = _select_pair(_NEWEST_FIRST, _FROM)
_NEWEST_COUNTED = _select_pair(_NEWEST_FIRST, _FROM, _COUNTS)
_EARLIER = _select_pair(_NEWEST_FIRST, DuelRun.started_at < bindparam("end"), _COUNTS, _OTHERS)
_SINCE = {
    (leads, is_first): _select_pair(
        DuelRun.started_at, _FROM if is_first else _AFTER, {"a": _A_LEADS, "b": _B_LEADS}[leads]
    )
    for leads in "ab"
    for is_first in (True, False)
}
"""The pair with which side a's or b's lead began: the first of all, or after the other's last."""


def _read_answer(session: Session, group: Row[Any]) -> dict[str, Any]:
    same = {key: getattr(group, key) for key in (*_CASE, *_ARMS)}
    counts = group.counted is not None
    query, start = (_NEWEST_COUNTED, group.counted) if counts else (_NEWEST, group.last)
    pair = session.execute(query, {**same, "start": start}).one()
    row = {key: getattr(pair, key) for key in _SHOWN if key != "id"}
    row |= {key: getattr(pair, key) for key in _JUDGED} | {"device": pair.device["name"]}
    row |= {"duel_run": pair.id, "counts": counts, "reason": "" if counts else pair.reason}
    row |= {key: getattr(pair, key) if counts else None for key in ("log_ratio", "low", "high")}
    row["verdict"] = pair.verdict if counts else "unknown"
    leads = counts and pair.verdict == "different"
    a_leads = leads and pair.log_ratio > 0
    row["faster"] = (pair.a_framework if a_leads else pair.b_framework) if leads else None
    row["since"] = _find_since(session, group, same, "a" if a_leads else "b") if leads else None
    asks = counts and pair.use_case == "op"
    row["earlier"] = _find_earlier(session, same, pair) if asks else None
    return row


def _find_earlier(
    session: Session, same: Mapping[str, Any], pair: Row[Any]
) -> dict[str, Any] | None:
    """The newest pair before this one in which a side had another version."""
    versions = {key: getattr(pair, key) for key in _VERSIONS}
    found = session.execute(_EARLIER, {**same, **versions, "end": pair.started_at}).first()
    shown = ("started_at", "log_ratio", "low", "high", *_VERSIONS)
    return None if found is None else {key: getattr(found, key) for key in shown}


def _find_since(
    session: Session, group: Row[Any], same: Mapping[str, Any], leads: str
) -> dict[str, Any]:
    """The first pair with this lead after the other side's last one."""
    lost = group.b_led if leads == "a" else group.a_led
    start = group.first if lost is None else lost
    found = session.execute(_SINCE[leads, lost is None], {**same, "start": start}).one()
    return {
        **{key: getattr(found, key) for key in (*_VERSIONS, "started_at")},
        "always": lost is None,
    }


def _read_amounts(
    engine: Engine, rows: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str], dict[str, float | None]]:
    """By duel run and contender."""
    campaigns = {row["campaign"] for row in rows if row["counts"]}
    runs = sorted({row["duel_run"] for row in rows if row["campaign"] in campaigns})
    found = dict[tuple[str, str], dict[str, float | None]]()
    for first in range(0, len(runs), _AT_ONCE):
        part = Runs(runs[first : first + _AT_ONCE])
        frame = amount_frame(engine, part, _AMOUNTS).loc[:, ["duel_run", "name", *_AMOUNTS]]
        for row in frame.to_dict("records"):
            found[row["duel_run"], row["name"]] = {key: _to_number(row[key]) for key in _AMOUNTS}
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

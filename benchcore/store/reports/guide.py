"""Which framework is faster for each case: its newest row that counts, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Engine, Row, and_, case, func, or_, select
from sqlalchemy.orm import Session

from benchcore.store.frames.contenders import amount_frame
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
_AMOUNTS = (
    *("median_step_ns", "items_per_s", "latency_p50_ns", "cold_compile_s"),
    *("allocator_peak_bytes", "process_peak_bytes", "gross_mj"),
    *("state_bytes_per_device", "communicated_bytes", "numpy_step_ns"),
    *("new_shape_s", "after_new_shapes"),
)
_NEVER_COMPILED = "torch-eager"
"""Arms that begin so. JAX's eager operations are compiled, each for itself."""
NOT_MEASURED = (
    (
        "Pipeline parallelism",
        "PyTorch has it in its own library (torch.distributed.pipelining); JAX has not, but "
        "documents how to write it by hand.",
    ),
    (
        "Expert parallelism",
        "Neither has it in its own library, only the exchange between devices that it needs.",
    ),
    (
        "Kernels in CUDA",
        "A kernel in CUDA is the same on both sides.",
    ),
    (
        "Kernels in Triton and Pallas on a CPU",
        "A CPU only has interpreters for them, which prove that they are right and have no speed. "
        "This project has not run them on a GPU yet.",
    ),
    (
        "Dynamic shapes in JAX",
        "JAX compiles each shape for itself, also a function that was exported for any shape. So "
        "PyTorch's dynamic shapes are compared with that, and with padding on both sides.",
    ),
    (
        "Libraries for training",
        "They choose the model and the data path too, so no proof could show that both sides do "
        "the same. Scripts written by hand are compared.",
    ),
    (
        "Modules or functions",
        "No network is written in both styles on one side, so no row separates them. Torchvision's "
        "networks are modules on both sides, and ensembles are functions. PyTorch's others are "
        "modules, and JAX's functions of named arrays.",
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
    """Of campaigns, one query for each of their cases: it reads that case's nights alone."""
    if campaigns is None:
        return list(session.execute(_select_groups().where(PairRatio.kind == _KIND)))
    columns = [getattr(DuelRun, key) for key in _CASE]
    cases = select(*columns).where(DuelRun.campaign.in_(campaigns)).distinct()
    groups = _select_groups().where(skip_index(PairRatio.kind) == _KIND)
    return [
        group
        for case in session.execute(cases).all()
        for group in session.execute(groups.where(*_equal(case)))
    ]


def _equal(case: Row[Any]) -> list[ColumnElement[bool]]:
    return [getattr(DuelRun, key).is_not_distinct_from(getattr(case, key)) for key in _CASE]


def _select_groups() -> Any:
    columns = [*(getattr(DuelRun, key) for key in _CASE), *(getattr(PairRatio, k) for k in _ARMS)]
    newest = [
        func.max(case((condition, DuelRun.started_at))).label(name)
        for name, condition in (("counted", _COUNTS), ("a_led", _A_LEADS), ("b_led", _B_LEADS))
    ]
    ends = (func.min(DuelRun.started_at).label("first"), func.max(DuelRun.started_at).label("last"))
    query = select(*columns, *ends, *newest)
    return _join(query).where(*_WANTED).group_by(*columns)


def _join(query: Any) -> Any:
    return query.select_from(DuelRun).join(PairRatio, PairRatio.duel_run == DuelRun.id)


def _read_answer(session: Session, group: Row[Any]) -> dict[str, Any]:
    same = [*_equal(group)]
    same += [skip_index(getattr(PairRatio, key)) == getattr(group, key) for key in _ARMS]
    same += [skip_index(PairRatio.kind) == _KIND]
    query = _join(select(DuelRun, PairRatio)).where(*_WANTED, *same)
    counts = group.counted is not None
    # A bound of the time lets the database read the case's nights by their index, in order.
    at = DuelRun.started_at >= (group.counted if counts else group.last)
    newest = query.where(_COUNTS, at) if counts else query.where(at)
    duel, pair = session.execute(newest.order_by(DuelRun.started_at.desc()).limit(1)).one()
    row = {key: getattr(duel, key) for key in _SHOWN if key != "id"}
    row |= {key: getattr(pair, key) for key in _JUDGED} | {"device": duel.device["name"]}
    row |= {"duel_run": duel.id, "counts": counts, "reason": "" if counts else pair.reason}
    row |= {key: getattr(pair, key) if counts else None for key in ("log_ratio", "low", "high")}
    row["verdict"] = pair.verdict if counts else "unknown"
    leads = counts and pair.verdict == "different"
    a_leads = leads and pair.log_ratio > 0
    row["faster"] = (pair.a_framework if a_leads else pair.b_framework) if leads else None
    led, lost = (_A_LEADS, group.b_led) if a_leads else (_B_LEADS, group.a_led)
    since = query.where(led, DuelRun.started_at >= group.first)
    row["since"] = _find_since(session, since, lost) if leads else None
    asks = counts and duel.use_case == "op"
    row["earlier"] = _find_earlier(session, query.where(_COUNTS), duel, pair) if asks else None
    return row


def _find_earlier(
    session: Session, counted: Any, duel: DuelRun, pair: PairRatio
) -> dict[str, Any] | None:
    """The newest pair before this one in which a side had another version."""
    other = or_(*(getattr(PairRatio, key) != getattr(pair, key) for key in _VERSIONS))
    before = counted.where(other, DuelRun.started_at < duel.started_at)
    found = session.execute(before.order_by(DuelRun.started_at.desc()).limit(1)).first()
    if found is None:
        return None
    run, earlier = found
    shown = ("log_ratio", "low", "high", *_VERSIONS)
    return {"started_at": run.started_at, **{key: getattr(earlier, key) for key in shown}}


def _find_since(session: Session, leads: Any, lost: Any) -> dict[str, Any]:
    """The first pair with this lead after the other side's last one."""
    after: list[ColumnElement[bool]] = [] if lost is None else [DuelRun.started_at > lost]
    duel, pair = session.execute(leads.where(*after).order_by(DuelRun.started_at).limit(1)).one()
    versions = {key: getattr(pair, key) for key in _VERSIONS}
    return {**versions, "started_at": duel.started_at, "always": lost is None}


def _read_amounts(
    engine: Engine, rows: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str], dict[str, float | None]]:
    """By duel run and contender."""
    campaigns = sorted({row["campaign"] for row in rows if row["counts"]})
    if not campaigns:
        return {}
    frame = amount_frame(engine, campaigns)
    frame = frame.loc[frame["duel_run"].isin([row["duel_run"] for row in rows])]
    return {
        (row["duel_run"], row["name"]): {key: _to_number(row[key]) for key in _AMOUNTS}
        for row in frame.to_dict("records")
    }


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

"""How many starts each pair of a plan needs to show a change, from its own past nights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from statistics import fmean

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.names import name_cpus
from benchcore.store.history.series import IN_SERIES
from benchcore.store.models import DuelRun, PairRatio
from benchcore.verdict.confirmation.error_rates import Spread, find_fewest_starts, measure_spread

NEWEST_NIGHTS = 60
"""The newest nights of a series, whose spread counts."""
_SURE = 3.6
"""Standard errors between two levels that a test at 5 % shows with a power of 95 %."""
_Pair = tuple[str, str, str, str, str]
"""Workload, case, sides, and the fingerprint and name of the device."""
_Nights = dict[_Pair, list[tuple[list[float], float]]]
"""By pair: log ratios, and the seconds of a start, of each night."""


@dataclass(frozen=True, kw_only=True)
class StartsNeeded:
    """What one pair needs on the device that measured its nights. `starts` None = see `reason`;
    `minutes` is of all starts. `pair` None = no pair of the case has a history."""

    workload: str
    case: str
    pair: str | None
    device: str | None
    device_name: str | None
    num_nights: int
    spread: Spread | None
    starts: int | None
    minutes: float | None
    reason: str


def list_starts_needed(
    engine: Engine | None, cases: Collection[tuple[str, str]], shift: float
) -> list[StartsNeeded]:
    """Every pair of these cases (workload, case) that has a history, in order of its name; then the
    cases without one. The engine is None where nothing has been stored yet.

    `shift` is a log ratio, to be shown with a power of 95 %.
    """
    nights = _read_nights(engine, cases) if engine is not None else {}
    without = sorted({*cases} - {key[:2] for key in nights})
    return [
        *(_judge(key, of_pair[:NEWEST_NIGHTS], shift) for key, of_pair in sorted(nights.items())),
        *(_without_history(workload, case) for workload, case in without),
    ]


def _read_nights(engine: Engine, cases: Collection[tuple[str, str]]) -> _Nights:
    """The newest nights first."""
    query = (
        select(DuelRun, PairRatio)
        .join(PairRatio, PairRatio.duel_run == DuelRun.id)
        .where(*IN_SERIES, DuelRun.workload.in_({workload for workload, _ in cases}))
        .order_by(DuelRun.started_at.desc(), DuelRun.id)
    )
    nights: _Nights = defaultdict(list)
    with Session(engine) as session:
        for duel, ratio in session.execute(query):
            sides = f"{ratio.a_arm} against {ratio.b_arm}"
            if ratio.kind == "cross_version":
                sides += f" ({ratio.b_role})"
            device = (duel.device_fingerprint, _name_device(duel))
            key = (duel.workload, duel.case_name, sides, *device)
            taken_s = (duel.ended_at - duel.started_at).total_seconds()
            if key[:2] in cases:
                logs = ratio.start_log_ratios
                nights[key].append((logs, taken_s / max(1, len(logs))))
    return nights


def _name_device(duel: DuelRun) -> str:
    """Its model; of a CPU also how many of them, which is part of its identity."""
    if duel.device["kind"] != "cpu":
        return duel.device_model
    return name_cpus(duel.device_model, duel.device["count"])


def _without_history(workload: str, case: str) -> StartsNeeded:
    return StartsNeeded(
        workload=workload,
        case=case,
        pair=None,
        device=None,
        device_name=None,
        num_nights=0,
        spread=None,
        starts=None,
        minutes=None,
        reason="no history yet",
    )


def _judge(key: _Pair, nights: list[tuple[list[float], float]], shift: float) -> StartsNeeded:
    workload, case, pair, device, device_name = key
    spread = measure_spread(ratios for ratios, _ in nights)
    starts = None if spread is None else find_fewest_starts(spread, shift)
    minutes = None if starts is None else starts * fmean(each for _, each in nights) / 60
    return StartsNeeded(
        workload=workload,
        case=case,
        pair=pair,
        device=device,
        device_name=device_name,
        num_nights=len(nights),
        spread=spread,
        starts=starts,
        minutes=minutes,
        reason=_explain(spread, starts, shift),
    )


def _explain(spread: Spread | None, starts: int | None, shift: float) -> str:
    if spread is None:
        return "too few starts measured so far"
    if starts is None:
        return "100 starts would not show it"
    if spread.nights is not None and spread.nights * _SURE > shift:
        return "nights differ too much among themselves: only a confirmation shows it"
    return ""

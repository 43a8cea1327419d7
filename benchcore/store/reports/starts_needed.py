"""How many starts each pair of a plan needs to show a change, from its own past nights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from statistics import fmean

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.store.models import DuelRun, PairRatio
from benchcore.store.series import IN_SERIES
from benchcore.verdict.confirmation.error_rates import Spread, find_fewest_starts, measure_spread

NEWEST_NIGHTS = 60
"""The newest nights of a series, whose spread counts."""
_SURE = 3.6
"""Standard errors between two levels that a test at 5 % shows with a power of 95 %."""


@dataclass(frozen=True, kw_only=True)
class StartsNeeded:
    """What one pair needs. `starts` None = see `reason`; `minutes` is of all starts."""

    workload: str
    case: str
    pair: str
    device: str
    num_nights: int
    spread: Spread | None
    starts: int | None
    minutes: float | None
    reason: str


def list_starts_needed(
    engine: Engine, cases: Collection[tuple[str, str]], shift: float
) -> list[StartsNeeded]:
    """Every pair of these cases (workload, case) that has a history, in order of its name.

    `shift` is a log ratio, to be shown with a power of 95 %.
    """
    query = (
        select(DuelRun, PairRatio)
        .join(PairRatio, PairRatio.duel_run == DuelRun.id)
        .where(*IN_SERIES, DuelRun.workload.in_({workload for workload, _ in cases}))
        .order_by(DuelRun.started_at.desc(), DuelRun.id)
    )
    nights = defaultdict[tuple[str, ...], list[tuple[list[float], float]]](list)
    with Session(engine) as session:
        for duel, ratio in session.execute(query):
            sides = f"{ratio.a_arm} against {ratio.b_arm}"
            if ratio.kind == "cross_version":
                sides += f" ({ratio.b_role})"
            key = (duel.workload, duel.case_name, sides, duel.device_fingerprint)
            taken_s = (duel.ended_at - duel.started_at).total_seconds() / max(1, duel.num_starts)
            nights[key].append((ratio.start_log_ratios, taken_s))
    wanted = set(cases)
    return [
        _judge(key, of_pair[:NEWEST_NIGHTS], shift)
        for key, of_pair in sorted(nights.items())
        if key[:2] in wanted
    ]


def _judge(
    key: tuple[str, ...], nights: list[tuple[list[float], float]], shift: float
) -> StartsNeeded:
    workload, case, pair, device = key
    spread = measure_spread(ratios for ratios, _ in nights)
    starts = None if spread is None else find_fewest_starts(spread, shift)
    minutes = None if starts is None else starts * fmean(each for _, each in nights) / 60
    return StartsNeeded(
        workload=workload,
        case=case,
        pair=pair,
        device=device,
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

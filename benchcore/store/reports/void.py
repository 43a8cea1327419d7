"""Why nothing of a campaign counts: the sentence that its page, log and alert begin with, and the
duels that are worth measuring again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import median

from sqlalchemy import Engine, Select, intersect, select
from sqlalchemy.orm import Session

from benchcore.cell.measure.degraded import MAX_FOREIGN_CPU_SHARE
from benchcore.protocol import CALIBRATION_TRACK, DEFECT_TRACK
from benchcore.store.duels import read_duels
from benchcore.store.models import (
    ContenderRun,
    DuelRun,
    FailedCheckRow,
    PairRatio,
    StartRun,
    SuspicionRow,
)
from benchcore.store.records import DuelRecord
from benchcore.verdict.duel.physics import SENTINELS
from benchcore.verdict.duel.ratios import classify_pair
from benchcore.verdict.starts import log_ratios_by_start

_Starts = Mapping[int, Mapping[int, float]]
ENDED_WELL = ("ok", "workaround")
_NEVER_COUNT = (CALIBRATION_TRACK, DEFECT_TRACK)
"""Tracks that are measured for another purpose than a ratio."""
_OF_MACHINE = (*SENTINELS, "noop")
"""Workloads that measure the machine or us: a plan measures them beside its own question."""
_NO_CEILING = "judged physics"
"""The suite that a pair fails without a ceiling: by design in a plan that measures none."""


def list_disturbed(engine: Engine, campaign: str) -> list[str]:
    """The duel runs of a campaign in which others disturbed every shared round of some pair:
    measuring them again may give what this run could not. Not those that a suspicion rests on,
    which would be lost with their rows."""
    found = [each.duel_run for each in read_duels(engine, campaign) if _is_disturbed(each)]
    with Session(engine) as session:
        kept = _list_rested_on(session) if found else ()
    return [each for each in found if each not in kept]


def list_unbuilt(engine: Engine, campaign: str) -> dict[str, set[str]]:
    """Names of contenders whose environment could not be built, by duel run of a campaign. Duel
    runs that a suspicion rests on are left out."""
    query = (
        select(ContenderRun.duel_run, ContenderRun.name)
        .join(DuelRun, DuelRun.id == ContenderRun.duel_run)
        .where(DuelRun.campaign == campaign, ContenderRun.status == "environment")
    )
    found = dict[str, set[str]]()
    with Session(engine) as session:
        for duel_run, name in session.execute(query):
            found.setdefault(duel_run, set()).add(name)
        kept = _list_rested_on(session) if found else ()
    return {run: names for run, names in found.items() if run not in kept}


def _list_rested_on(session: Session) -> set[str | None]:
    """The duel runs that suspicions rest on."""
    rests_on = (SuspicionRow.before_run, SuspicionRow.since_run, SuspicionRow.after_run)
    return {run for row in session.execute(select(*rests_on)) for run in row}


def list_clean_pairs(engine: Engine, campaign: str) -> dict[str, set[frozenset[str]]]:
    """The pairs that shared an undisturbed round, by duel run of a campaign; of a lone contender
    itself, if it had one."""
    return {each.duel_run: _find_clean(each) for each in read_duels(engine, campaign)}


def _is_disturbed(record: DuelRecord) -> bool:
    measured = {each.name: each.starts for each in record.sides}
    return _find_clean(record) != _find_pairs(record, measured)


def _find_clean(record: DuelRecord) -> set[frozenset[str]]:
    return _find_pairs(record, {each.name: each.valid_starts for each in record.sides})


def _find_pairs(record: DuelRecord, times: Mapping[str, _Starts]) -> set[frozenset[str]]:
    """The pairs that are compared, or all if none is, whose sides share a round in `times`."""
    ran = [each for each in record.sides if each.starts]
    if len(ran) == 1:
        return {frozenset((each.name,)) for each in ran if any(times[each.name].values())}
    alone, pairs = len(record.sides) == 2, list(combinations(ran, 2))
    compared = [each for each in pairs if classify_pair(*each, alone=alone) is not None]
    return {
        frozenset((one.name, other.name))
        for one, other in compared or pairs
        if log_ratios_by_start(times[one.name], times[other.name])
    }


def list_void(engine: Engine, campaigns: Sequence[str]) -> dict[str, str]:
    """`explain_void` of those of the campaigns in which nothing counts."""
    of_campaigns = select(DuelRun.campaign).where(
        DuelRun.campaign.in_(campaigns), DuelRun.track.not_in(_NEVER_COUNT)
    )
    ran = of_campaigns.join(ContenderRun, ContenderRun.duel_run == DuelRun.id).where(
        DuelRun.workload.not_in(_OF_MACHINE), ContenderRun.status.in_(ENDED_WELL)
    )
    counting = of_campaigns.join(PairRatio, PairRatio.duel_run == DuelRun.id).where(
        DuelRun.workload.not_in(SENTINELS), PairRatio.counts
    )
    with Session(engine) as session:
        usual = set(session.scalars(intersect(ran, counting)))
    explained = {each: explain_void(engine, each) for each in campaigns if each not in usual}
    return {name: why for name, why in explained.items() if why is not None}


def explain_void(engine: Engine, campaign: str) -> str | None:
    """Why nothing of the campaign counts, in one sentence; None = something does, or nothing in it
    was meant to."""
    with Session(engine) as session:
        failed = _explain_failures(session, campaign)
        if failed is not None:
            return failed
        if session.scalar(_select_pairs(campaign).where(PairRatio.counts).limit(1)) is not None:
            return None
        pairs = _read_pairs(session, campaign)
        if not pairs or any(each.counts for each in pairs) or _lacks_ceilings(session, pairs):
            return None
        shares = _list_disturbances(session, campaign)
    if shares:
        low, high = (f"{100 * each:.0f}" for each in (min(shares), max(shares)))
        span = f"{low} %" if low == high else f"{low} to {high} %"
        busy = "Nothing counts: the machine was busy."
        return f"{busy} Other processes used {span} of its CPUs."
    reason, count = Counter(each.reason for each in pairs).most_common(1)[0]
    return f"Nothing counts: in {count} of {len(pairs)} pairs {reason}."


def _explain_failures(session: Session, campaign: str) -> str | None:
    """Why no contender of the campaign ended well; None = one did, or there is none. Those that
    measure the machine count only in a campaign of nothing else."""
    query = (
        select(ContenderRun)
        .join(DuelRun, DuelRun.id == ContenderRun.duel_run)
        .where(DuelRun.campaign == campaign, DuelRun.track.not_in(_NEVER_COUNT))
    )
    own = query.where(DuelRun.workload.not_in(_OF_MACHINE))
    contenders = list(session.scalars(own)) or list(session.scalars(query))
    if not contenders or any(each.status in ENDED_WELL for each in contenders):
        return None
    counts = Counter(each.status for each in contenders)
    listed = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    return f"Nothing was measured: no contender ran ({listed}): {contenders[0].reason}."


def _read_pairs(session: Session, campaign: str) -> Sequence[PairRatio]:
    return session.scalars(_select_pairs(campaign)).all()


def _select_pairs(campaign: str) -> Select[tuple[PairRatio]]:
    """The pairs that a campaign is for: ceilings are measured only for the others."""
    return (
        select(PairRatio)
        .join(DuelRun, DuelRun.id == PairRatio.duel_run)
        .where(
            DuelRun.campaign == campaign,
            DuelRun.track.not_in(_NEVER_COUNT),
            DuelRun.workload.not_in(SENTINELS),
        )
    )


def _lacks_ceilings(session: Session, pairs: Iterable[PairRatio]) -> bool:
    """Whether pairs fail only because their campaign measures no ceilings."""
    runs = {each.duel_run for each in pairs}
    failed = session.scalars(
        select(FailedCheckRow.suite).where(
            FailedCheckRow.duel_run.in_(runs), FailedCheckRow.severity == "critical"
        )
    )
    of_campaign = select(DuelRun.campaign).where(DuelRun.id.in_(runs))
    sentinels = select(DuelRun.id).where(
        DuelRun.campaign.in_(of_campaign), DuelRun.workload.in_(SENTINELS)
    )
    return set(failed) == {_NO_CEILING} and session.scalar(sentinels.limit(1)) is None


def _list_disturbances(session: Session, campaign: str) -> list[float]:
    """By start, the median share of the CPUs that others used in its disturbed blocks."""
    query = (
        select(StartRun.blocks)
        .join(DuelRun, DuelRun.id == StartRun.duel_run)
        .where(DuelRun.campaign == campaign)
    )
    found = []
    for blocks in session.scalars(query):
        shares = [each["telemetry"].get("foreign_cpu_share") or 0.0 for each in blocks]
        busy = [each for each in shares if each > MAX_FOREIGN_CPU_SHARE]
        if blocks and len(busy) * 2 > len(blocks):
            found.append(median(busy))
    return found

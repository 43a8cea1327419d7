"""Reads how far starts spread in earlier duels of the same two environments, to judge a new one."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import permutations

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session, aliased

from benchcore.store.models import ContenderRun, DuelRun, PairRatio
from benchcore.verdict.duel.ratios import Ratio
from benchcore.verdict.starts import StartsOfDuel

_MOST_DUELS = 20
"""The last ones, whose spread is looked at; fewer than five show nothing."""
_DAYS = 45
_OF_DUEL = (
    *("workload", "case_name", "track", "device_fingerprint", "checkpoint", "method"),
    *("num_starts", "num_rounds"),
)
"""What two duels must have in common for their starts to spread equally."""
_Side = tuple[str, str]
"""The environment's key and the arm."""
_Pair = tuple[tuple[object, ...], _Side, _Side]


class EarlierStarts:
    """The starts of the duels before those of some campaigns, by pair of environments."""

    def __init__(
        self,
        duels: Mapping[str, tuple[object, ...]],
        sides: Mapping[str, Mapping[str, _Side]],
    ) -> None:
        """`duels`: what is in `_OF_DUEL`, by duel run; `sides`: of its contenders, by name."""
        self._duels, self._sides = duels, sides
        self._known = defaultdict[_Pair, deque[StartsOfDuel]](lambda: deque(maxlen=_MOST_DUELS))

    @classmethod
    def read(cls, session: Session, campaigns: Collection[str]) -> EarlierStarts:
        """What the database holds from before the first duel of these campaigns."""
        of_duel = [getattr(DuelRun, name) for name in _OF_DUEL]
        judged = DuelRun.campaign.in_(campaigns)
        rows = list(session.execute(select(DuelRun.id, *of_duel).where(judged)))
        sides = defaultdict[str, dict[str, _Side]](dict)
        columns = (ContenderRun.duel_run, ContenderRun.name)
        of_side = (ContenderRun.environment_key, ContenderRun.arm)
        contenders = select(*columns, *of_side).join(DuelRun).where(judged)
        for run, name, key, arm in session.execute(contenders):
            sides[run][name] = (key, arm)
        found = cls({run: tuple(case) for run, *case in rows}, sides)
        first = session.scalar(select(func.min(DuelRun.started_at)).where(judged))
        if first is not None:
            found._read_before(session, first, campaigns)
        return found

    def _read_before(self, session: Session, first: datetime, campaigns: Collection[str]) -> None:
        environments = {key for sides in self._sides.values() for key, _ in sides.values()}
        cases = {str(case[1]) for case in self._duels.values()}
        one, other = aliased(ContenderRun), aliased(ContenderRun)
        query = (
            select(
                *(getattr(DuelRun, name) for name in _OF_DUEL),
                *(one.environment_key, one.arm, other.environment_key, other.arm),
                *(PairRatio.start_log_ratios, PairRatio.start_compilations),
            )
            .join(PairRatio, PairRatio.duel_run == DuelRun.id)
            .join(one, and_(one.duel_run == DuelRun.id, one.name == PairRatio.a))
            .join(other, and_(other.duel_run == DuelRun.id, other.name == PairRatio.b))
            .where(
                PairRatio.counts,
                DuelRun.started_at < first,
                DuelRun.started_at >= first - timedelta(days=_DAYS),
                DuelRun.campaign.not_in(campaigns),
                DuelRun.case_name.in_(cases),
                one.environment_key.in_(environments),
                other.environment_key.in_(environments),
            )
            .order_by(DuelRun.started_at, DuelRun.id)
        )
        for *case, a_key, a_arm, b_key, b_arm, logs, compilations in session.execute(query):
            pair = (tuple(case), (a_key, a_arm), (b_key, b_arm))
            self._known[pair].append((logs, compilations))

    def of(self, duel_run: str) -> Mapping[tuple[str, str], list[StartsOfDuel]]:
        """The starts of the duels before this one, by the names of its pairs."""
        case, sides = self._duels[duel_run], self._sides[duel_run]
        return {
            (a, b): list(known)
            for a, b in permutations(sides, 2)
            if (known := self._known.get((case, sides[a], sides[b])))
        }

    def add(self, duel_run: str, ratios: Iterable[Ratio]) -> None:
        """Let the ratios of a duel that count inform the later ones."""
        case, sides = self._duels[duel_run], self._sides[duel_run]
        for each in ratios:
            if each.counts:
                pair = (case, sides[each.a], sides[each.b])
                self._known[pair].append((each.start_log_ratios, each.start_compilations))

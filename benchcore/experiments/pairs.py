"""Measure an old and a new environment on one case in one duel, in rounds that add up; read their
starts from the database and judge them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from benchcore.errors import CampaignIncompleteError, EnvironmentBuildError
from benchcore.experiments.compare import list_plain_arms
from benchcore.experiments.rounds import Measurer, RunContext, name_starts
from benchcore.planning.catalog import load_spec
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import Match, Profile, list_sentinels
from benchcore.planning.tracks import Arm
from benchcore.store.database import Engine
from benchcore.store.duels import read_duels
from benchcore.store.records import DuelRecord
from benchcore.verdict.allocations import judge_allocations
from benchcore.verdict.duel.ratios import ContenderTimes
from benchcore.verdict.samples import EQUIVALENCE_BOUND, Judgement

_ROUNDS = 6
_SEED = 20260801
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class BisectTarget:
    """The case that changed between two versions of a framework, with settings as for `compare`."""

    framework: str
    good: str
    bad: str
    workload: str
    case: str
    settings: Sequence[str] = ()
    device: str = "cpu"
    bound: float = EQUIVALENCE_BOUND

    @property
    def name(self) -> str:
        """The prefix of its campaigns' names; the same request resumes earlier measurements."""
        fields = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return f"bisect-{self.framework}-{hashlib.sha256(fields.encode()).hexdigest()[:10]}"


def draft_profile(
    target: BisectTarget,
    arms: tuple[Arm, ...],
    starts: range,
    context: RunContext,
    *,
    first: bool = False,
    passes: bool = False,
) -> Profile:
    """The profile of a pair's next starts; with `passes` it also profiles their programs.

    The `first` round also measures the device's ceilings: no pair counts without them.
    """
    match = Match(
        workload=target.workload,
        case=target.case,
        arms=arms,
        expected_s=10.0 * len(starts),
        limits=dataclasses.replace(
            context.profile.limits.exactly(starts=len(starts), rounds=_ROUNDS),
            compilations=len(starts),  # so that starts are independent
            budget_s=300.0,
            passes=passes,
        ),
    )
    return dataclasses.replace(
        context.profile,
        name="bisect",
        matches=(match, *(_list_ceilings(target, arms, context) if first else ())),
        device=target.device,
        seed=_SEED + starts.start,
    )


def _list_ceilings(
    target: BisectTarget, arms: Sequence[Arm], context: RunContext
) -> tuple[Match, ...]:
    """By the versions of these arms, without their settings."""
    (plain,) = list_plain_arms(target.framework)
    return list_sentinels(
        target.device,
        load_spec(target.workload).cases[target.case].precision,
        tuple(dataclasses.replace(plain, request=arm.request) for arm in arms),
        context.profile.limits,
        besides=(target.workload, target.case),
    )


@dataclass
class PairRounds(Generic[T]):
    """Measures pairs of an old and a new environment and stores their starts: a later round adds to
    them."""

    bound: float
    measurer: Measurer
    engine: Engine
    draft: Callable[[T, T, range, bool], Plan]
    """The plan of a pair's next starts; True = without starts of earlier rounds."""
    name: Callable[[T, T], str]
    """The name of a pair for people: `jax 0.11.1 against 0.11.2`."""
    lost: list[str] = field(default_factory=list)
    """Why starts do not count."""
    campaigns: list[str] = field(default_factory=list)
    _pairs: dict[tuple[T, T, bool], list[np.ndarray]] = field(default_factory=dict)
    _begun: dict[tuple[T, T, bool], int] = field(default_factory=dict)

    def judge(self, old: T, new: T, num_starts: int, fresh: bool) -> Judgement:
        """Judge log(T_new / T_old) from `num_starts` starts, after measuring the missing ones.

        A `fresh` pair uses no start that was judged before. A pair that can't be built or measured
        is `unknown`.
        """
        key = (old, new, fresh)
        pairs, begun = self._pairs.setdefault(key, []), self._begun.get(key, 0)
        lost = list[str]()
        if num_starts > begun:
            more, lost = self._measure(old, new, range(begun, num_starts), fresh)
            pairs += more
            self._begun[key] = num_starts
            self.lost += [f"{self.name(old, new)}: {each}" for each in lost]
        return judge_pairs(pairs, lost, self.bound)

    def _measure(
        self, old: T, new: T, starts: range, fresh: bool
    ) -> tuple[list[np.ndarray], list[str]]:
        again = ", measured again" if fresh else ""
        title = f"{self.name(old, new)}, {name_starts(starts)}{again}"
        try:
            plan = self.draft(old, new, starts, fresh)
            self.measurer.measure(plan, title)
        except (EnvironmentBuildError, CampaignIncompleteError) as error:
            return [], [str(error)]
        self.campaigns.append(plan.campaign)
        pair = plan.duels[0].duel_run  # the others measure the device's ceilings
        records = read_duels(self.engine, plan.campaign)
        return read_pairs([each for each in records if each.duel_run == pair])


def read_pairs(records: Sequence[DuelRecord]) -> tuple[list[np.ndarray], list[str]]:
    """log(T_new / T_old) of each start that counts, one value per round; and why others don't. The
    first contender of a duel is the old version."""
    found, lost = list[np.ndarray](), list[str]()
    for record in records:
        old, new = record.sides
        wrong = [each.reason for each in record.exclusions if each.concerns(old.name, new.name)]
        if wrong:
            lost.append(wrong[0])
            continue
        for pairs in _pair_starts(old, new):
            if len(pairs):
                found.append(pairs)
            else:
                lost.append("disturbed throughout: every round of the start is degraded")
    return found, lost


def _pair_starts(old: ContenderTimes, new: ContenderTimes) -> Iterator[np.ndarray]:
    a, b = old.valid_starts, new.valid_starts
    for start in sorted(a.keys() & b.keys()):
        rounds = sorted(a[start].keys() & b[start].keys())
        yield np.array([math.log(b[start][each] / a[start][each]) for each in rounds])


def judge_pairs(pairs: Sequence[np.ndarray], lost: Sequence[str], bound: float) -> Judgement:
    """The verdict over starts, as in a confirmation; without starts, the reason."""
    found = judge_allocations(pairs, bound, prefer="same")
    if not pairs and lost:
        return dataclasses.replace(found, reason=lost[0])
    return found

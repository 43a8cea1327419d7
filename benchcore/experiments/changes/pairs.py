"""Measure an old and a new environment on one case in one duel, in rounds that add up; read their
starts from the database and judge them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shlex
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from packaging.version import Version

from benchcore.errors import CampaignIncompleteError, EnvironmentBuildError
from benchcore.experiments.compare import list_plain_arms
from benchcore.experiments.rounds import Measurer, RunContext, name_starts
from benchcore.planning.catalog import load_spec
from benchcore.planning.matrix import Plan, make_plan
from benchcore.planning.profiles import Match, Profile, list_sentinels
from benchcore.planning.tracks import Arm
from benchcore.store.database import Engine
from benchcore.store.duels import read_duels
from benchcore.store.metric_values import read_campaign_values
from benchcore.store.metrics import Metric, find_tracked
from benchcore.store.records import DuelRecord
from benchcore.verdict.allocations import judge_allocations
from benchcore.verdict.duel.ratios import ContenderTimes
from benchcore.verdict.history.series import STEP_TIME
from benchcore.verdict.samples import EQUIVALENCE_BOUND, Judgement

_ROUNDS = 6
_SEED = 20260801
T = TypeVar("T", bound=Hashable)
ComparedSide = tuple[str, Sequence[str]]
"""A version request and settings as `KEY=VALUE`."""


@dataclass(frozen=True, kw_only=True)
class BisectTarget:
    """The case that changed between two versions of a framework, with settings as for `compare`."""

    framework: str
    """Or with further packages in its environment: `torch[opacus]`."""
    good: str
    bad: str
    workload: str
    case: str
    settings: Sequence[str] = ()
    device: str = "cpu"
    bound: float = EQUIVALENCE_BOUND
    metric: str = STEP_TIME
    """A tracked metric."""
    site: str = "local"
    """Where the commands that people are shown measure it."""

    @property
    def name(self) -> str:
        """The prefix of its campaigns' names; the same request resumes earlier measurements."""
        named = dataclasses.asdict(self)
        del named["site"]
        if self.metric == STEP_TIME:  # names stay as they were
            del named["metric"]
        digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:10]
        return f"bisect-{self.framework.partition('[')[0]}-{digest}"

    @property
    def judged(self) -> Metric:
        """The metric with its scale. Raises UserError if it is not tracked."""
        return find_tracked(self.metric)

    @property
    def repeat_command(self) -> str:
        """The command that measures both ends again: `compare` judges step times, and `bisect` any
        metric."""
        if self.metric != STEP_TIME:
            return self.search_command
        a, b = ((f"{self.framework}=={each}", self.settings) for each in (self.good, self.bad))
        return write_comparison(self.workload, self.case, a, b, self.device, self.site)

    @property
    def search_command(self) -> str:
        """The command that searches it, with the default bound."""
        metric = [] if self.metric == STEP_TIME else ["--metric", self.metric]
        settings = [word for each in self.settings for word in ("--set", each)]
        words = ["deadheat", "bisect", self.framework, "--workload", self.workload]
        words += ["--case", self.case, *metric, *settings, "--good", self.good, "--bad", self.bad]
        return shlex.join([*words, *_write_where(self.device, self.site)])

    def describe_effect(self, subject: str, before: str) -> str:
        """How people read a ratio of the metric: `2.1 takes {} times as long as 2.0`."""
        if self.metric == STEP_TIME:
            return f"{subject} takes {{}} times as long as {before}"
        return f"the {self.judged.noun} of {subject} is {{}} times that of {before}"


def order_versions(one: str, other: str) -> tuple[str, str]:
    """The older version first, as a search names them: where a release was withdrawn, the new
    environment has the older one."""
    older, newer = sorted((one, other), key=Version)
    return older, newer


def write_comparison(
    workload: str, case: str, a: ComparedSide, b: ComparedSide, device: str, site: str
) -> str:
    """The command that compares two sides."""
    words = ["deadheat", "compare", workload, "--case", case]
    for name, (request, settings) in (("a", a), ("b", b)):
        words += [f"--{name}", request]
        words += [word for each in settings for word in (f"--{name}-set", each)]
    return shlex.join([*words, *_write_where(device, site)])


def _write_where(device: str, site: str) -> list[str]:
    """Options that measure on this device of this site; none for what a command does by itself."""
    wanted = [] if device == "cpu" else ["--device", device]
    return [*wanted, *([] if site == "local" else ["--site", site])]


def find_bound(metric: str) -> float:
    """The share below which a change of a tracked metric is none. Raises UserError if untracked."""
    return find_tracked(metric).tracked_scale.bound


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

    A duel has one value of a metric other than step time, so each start is then a duel of its own
    (`spread_starts`). The `first` round also measures the device's ceilings: no pair counts without
    them.
    """
    in_duel = len(starts) if target.metric == STEP_TIME else 1
    match = Match(
        workload=target.workload,
        case=target.case,
        arms=arms,
        expected_s=10.0 * len(starts),
        limits=dataclasses.replace(
            context.profile.limits.exactly(starts=in_duel, rounds=_ROUNDS),
            compilations=in_duel,  # so that starts are independent
            budget_s=300.0,
            passes=passes or target.judged.of_pass,
        ),
    )
    return dataclasses.replace(
        context.profile,
        name="bisect",
        matches=(match, *(_list_ceilings(target, arms, context) if first else ())),
        device=target.device,
        seed=_SEED + starts.start,
    )


def spread_starts(plan: Plan, profile: Profile, target: BisectTarget, starts: range) -> Plan:
    """The plan with each start as a duel with its own seed, where the metric needs that."""
    if target.metric == STEP_TIME:
        return plan
    pair = dataclasses.replace(profile, matches=profile.matches[:1])
    duels = [
        make_plan(
            dataclasses.replace(pair, seed=_SEED + number),
            {arm.request: plan.releases[arm.request] for arm in pair.matches[0].arms},
            campaign=plan.campaign,
            site=plan.site,
        ).duels[0]
        for number in starts
    ]
    return dataclasses.replace(plan, duels=(*duels, *plan.duels[1:]))


def _list_ceilings(
    target: BisectTarget, arms: Sequence[Arm], context: RunContext
) -> tuple[Match, ...]:
    """The sentinels at the versions of these arms, without their settings."""
    (plain,) = list_plain_arms(target.framework.partition("[")[0])
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

    target: BisectTarget
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
        """Judge the log of the metric, new over old, from `num_starts` starts, after measuring the
        missing ones.

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
        return judge_pairs(pairs, lost, self.target)

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
        of_pair = (self.target.workload, self.target.case)  # other duels measure the ceilings
        pairs = {each.duel_run for each in plan.duels if (each.workload, each.case) == of_pair}
        records = [r for r in read_duels(self.engine, plan.campaign) if r.duel_run in pairs]
        if self.target.metric == STEP_TIME:
            return read_pairs(records)
        amounts = read_campaign_values(self.engine, plan.campaign, self.target.judged)
        return read_pairs(records, amounts)


_Amounts = Mapping[tuple[str, str], Mapping[int, float]]
"""By duel run and contender: a metric's value in each start."""


def read_pairs(
    records: Sequence[DuelRecord], amounts: _Amounts | None = None
) -> tuple[list[np.ndarray], list[str]]:
    """log(T_new / T_old) of each start that counts, one value per round; and why others don't. The
    first contender of a duel is the old version. With the `amounts` of another metric, one value
    per start."""
    found, lost = list[np.ndarray](), list[str]()
    for record in records:
        old, new = record.sides
        wrong = [each.reason for each in record.exclusions if each.concerns(old.name, new.name)]
        if wrong:
            lost.append(wrong[0])
            continue
        if amounts is not None:
            sides = [amounts.get((record.duel_run, each.name), {}) for each in (old, new)]
            found += _pair_amounts(*sides)
            lost += [
                f"{each.name} was not measured"
                for each, side in zip((old, new), sides, strict=True)
                if not side
            ]
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


def _pair_amounts(old: Mapping[int, float], new: Mapping[int, float]) -> list[np.ndarray]:
    shared = sorted(old.keys() & new.keys())
    return [np.array([math.log(new[each] / old[each])]) for each in shared]


def judge_pairs(
    pairs: Sequence[np.ndarray], lost: Sequence[str], target: BisectTarget
) -> Judgement:
    """The verdict over starts, as in a confirmation; without starts, the reason."""
    least_spread = target.judged.tracked_scale.least_spread
    found = judge_allocations(pairs, target.bound, prefer="same", noise_floor=least_spread)
    if not pairs and lost:
        return dataclasses.replace(found, reason=lost[0])
    return found

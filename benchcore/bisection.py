"""Which versions of a framework lie between two, and the duels that tell them apart."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from packaging.version import Version

from benchcore.adhoc import parse_arm
from benchcore.campaign import draft_plan
from benchcore.errors import UserError
from benchcore.interpreters import Interpreter
from benchcore.matrix import Plan
from benchcore.past_releases import check_answered, list_past
from benchcore.profiles import Match, Profile
from benchcore.releases import parse_request, pick_interpreters
from benchcore.store.judging import exclusions_of
from benchcore.store.records import DuelRecord
from benchcore.tracks import Arm
from benchcore.verdict.allocations import judge_allocations
from benchcore.verdict.ratios import Side
from benchcore.verdict.samples import EQUIVALENCE_BOUND, Judgement
from benchcore.version_index import VersionIndex

_ROUNDS = 6
_SEED = 20260801
_MOST_BETWEEN = 200


@dataclass(frozen=True, kw_only=True)
class Question:
    """Which version of a framework changed a case, settings as `compare` takes them."""

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
        """Of its campaigns: asked again it goes on with what was measured."""
        asked = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return f"bisect-{self.framework}-{hashlib.sha256(asked.encode()).hexdigest()[:10]}"


@dataclass(frozen=True, kw_only=True)
class Laboratory:
    """Where and how pairs are measured: as `profile` measures."""

    profile: Profile
    site: str
    python: str | None


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Every version from good to bad that can be installed on one Python, the same for all."""

    versions: tuple[str, ...]
    python: str


def find_candidates(
    question: Question, interpreters: list[Interpreter], python: str | None = None
) -> Candidates:
    """Ask the index, on the newest Python that both ends can be installed on.

    Raises UserError, also where the index does not answer: what lies between is unknown then.
    """
    good, bad = (
        parse_request(f"{question.framework}=={each}").version
        for each in (question.good, question.bad)
    )
    assert good is not None and bad is not None, "a pinned request has a version"
    if Version(good) >= Version(bad):
        raise UserError(
            f"wanted a good version that is older than the bad one, got {good} and {bad}; "
            "swap --good and --bad: what was sped up is found as well"
        )
    index = VersionIndex(question.framework)
    for each in pick_interpreters(interpreters, python):
        if all(_is_there(index, version, each) for version in (good, bad)):
            between = list_past(
                question.framework, [each], below=bad, above=good, count=_MOST_BETWEEN
            )
            return Candidates(versions=(good, *reversed(between.found), bad), python=each.minor)
    told = " ".join(index.failures[-1].message.split())[:600] if index.failures else "nothing"
    raise UserError(
        f"wanted one Python that both {question.framework} {good} and {bad} can be installed on, "
        f"found none; put another one on PATH, or choose nearer versions; uv said: {told}"
    )


def _is_there(index: VersionIndex, version: str, interpreter: Interpreter) -> bool:
    if index.installable(version, [interpreter]):
        return True
    check_answered(index, 1)
    return False


def draft_step(
    question: Question, pair: tuple[str, str], starts: range, where: Laboratory, campaign: str
) -> Plan:
    """The plan of one pair's next starts, in one duel. Raises UserError."""
    arms = tuple(
        parse_arm(",".join((f"{question.framework}=={version}", *question.settings)))
        for version in pair
    )
    profile = choose_profile(question, arms, starts, where)
    return draft_plan(profile, site=where.site, campaign=campaign, python=where.python)


def choose_profile(
    question: Question,
    arms: tuple[Arm, ...],
    starts: range,
    where: Laboratory,
    *,
    passes: bool = False,
) -> Profile:
    """How one pair's next starts are measured; with `passes` also its programs."""
    match = Match(
        workload=question.workload,
        case=question.case,
        arms=arms,
        expected_s=10.0 * len(starts),
        passes=passes,
    )
    return dataclasses.replace(
        where.profile,
        name="bisect",
        matches=(match,),
        device=question.device,
        seed=_SEED + starts.start,
        starts=len(starts),
        max_starts=len(starts),
        rounds=_ROUNDS,
        max_rounds=_ROUNDS,
    )


def read_pairs(records: Sequence[DuelRecord]) -> tuple[list[np.ndarray], list[str]]:
    """Of each start that counts log(T_new / T_old), one value a round; and why others don't. The
    first contender of a duel is the old version."""
    found, lost = list[np.ndarray](), list[str]()
    for record in records:
        old, new = record.sides
        wrong = [each.reason for each in exclusions_of(record) if each.concerns(old.name, new.name)]
        if wrong:
            lost.append(wrong[0])
            continue
        for pairs in _pair_starts(old, new):
            if len(pairs):
                found.append(pairs)
            else:
                lost.append("others disturbed it throughout: no round of a start may count")
    return found, lost


def _pair_starts(old: Side, new: Side) -> Iterator[np.ndarray]:
    a, b = old.valid_starts, new.valid_starts
    for start in sorted(a.keys() & b.keys()):
        rounds = sorted(a[start].keys() & b[start].keys())
        yield np.array([math.log(b[start][each] / a[start][each]) for each in rounds])


def judge_pairs(pairs: Sequence[np.ndarray], lost: Sequence[str], bound: float) -> Judgement:
    """The verdict over starts, as a confirmation's; where there are none, why."""
    found = judge_allocations(pairs, bound, asked_first="same")
    if not pairs and lost:
        return dataclasses.replace(found, reason=lost[0])
    return found

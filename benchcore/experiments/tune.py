"""Search the fair settings of both sides of a case: each duel compares the best settings so far
with one change, all duels with the same numbers of starts and rounds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from benchcore.errors import CampaignIncompleteError
from benchcore.experiments.compare import check_frameworks, check_limits, choose_case
from benchcore.experiments.rounds import Measurer
from benchcore.experiments.tune_rounds import TuneRequest, TuneRounds, begin_rounds
from benchcore.planning.matrix import PlannedDuel, check_device
from benchcore.planning.requests import USUAL, Placement, name_arm
from benchcore.planning.tracks import Arm
from benchcore.planning.tuning.fair_settings import (
    Candidate,
    Choices,
    Descent,
    descend,
    drop_defaults,
    list_choices,
)
from benchcore.planning.tuning.tuned import SCHEMA, Tried, TunedSettings, save_tuned
from benchcore.protocol import COMPARED, METHOD, name_case
from benchcore.state import State

_ATTEMPTS = 2
"""How often a disturbed duel is measured at most."""
_CONVERGED = "no change of one setting was faster"


@dataclass(kw_only=True)
class _Side:
    """The search of one framework's settings."""

    framework: str
    request: str
    choices: Choices
    descent: Descent
    candidate: Candidate | None = None
    best: Mapping[str, str] = field(default_factory=dict)
    tried: list[Tried] = field(default_factory=list)
    ended: str = ""

    def advance(self, won: bool | None) -> None:
        """Record whether the candidate won (None: begin), and take the next one."""
        if won and self.candidate is not None:
            self.best = self.candidate.settings
        try:
            self.candidate = next(self.descent) if won is None else self.descent.send(won)
        except StopIteration:
            self.candidate, self.ended = None, _CONVERGED

    def make_arm(self, settings: Mapping[str, str]) -> Arm:
        chosen = drop_defaults(settings, self.choices)
        return Arm(name=name_arm(self.framework, chosen), request=self.request, settings=chosen)


def _begin_side(request: TuneRequest, framework: str, case: str) -> _Side:
    choices = list_choices(request.workload, case, framework, request.device)
    side = _Side(
        framework=framework,
        request=getattr(request, framework),
        choices=choices,
        descent=descend(choices),
        best={key: values[0] for key, values in choices.items()},
    )
    side.advance(None)
    return side


def run_search(
    request: TuneRequest, state: State, measurer: Measurer, placement: Placement = USUAL
) -> dict[str, Any]:
    """Search both sides in turn, keep the winners, and return what was found. Raises UserError, and
    CampaignIncompleteError if a side does not run with its defaults."""
    _check_request(request)
    case = choose_case(request.workload, request.case_filter)
    sides = [_begin_side(request, framework, case) for framework in COMPARED]
    rounds = begin_rounds(request, case, state, measurer, placement)
    began = time.monotonic()
    for number in range(1, request.candidates + 1):
        spent = time.monotonic() - began > request.budget_s
        searched = [] if spent else [side for side in sides if side.candidate is not None]
        if not searched:
            break
        _measure_candidates(rounds, searched, number)
    for side in sides:
        spent = time.monotonic() - began > request.budget_s
        side.ended = side.ended or ("its time was spent" if spent else "all candidates were used")
    _confirm(rounds, sides)
    _require_judgement(sides)
    found = {side.framework: _describe(rounds, side) for side in sides}
    return {
        "case": name_case(request.workload, case),
        "campaign": rounds.campaign,
        **{name: dataclasses.asdict(each) for name, each in found.items()},
        "documents": {name: str(save_tuned(each, state)) for name, each in found.items()},
    }


def _check_request(request: TuneRequest) -> None:
    limits = (
        ("--starts", request.starts, 2, 100),
        ("--rounds", request.rounds, 2, 100),
        ("--candidates", request.candidates, 1, 1000),
        ("--budget", request.budget_s, 0, 1e7),
        ("--gain", request.gain, 0, 0.5),
    )
    check_limits(limits, "--starts 5 --rounds 10 --candidates 16 --budget 3600 --gain 0.01")
    check_frameworks(request.jax, request.torch)
    check_device(request.device)


def _measure_candidates(rounds: TuneRounds, sides: Sequence[_Side], number: int) -> None:
    """One duel of each side; a winner becomes the side's best."""
    candidates = [side.candidate for side in sides if side.candidate is not None]
    named = [f"{s.framework} {c.change}" for s, c in zip(sides, candidates, strict=True)]
    title = f"candidates {number} of at most {rounds.request.candidates}: {', '.join(named)}"
    judged = _judge(rounds, sides, candidates, title, rounds.request.gain)
    for side, candidate, tried in zip(sides, candidates, judged, strict=True):
        side.tried.append(tried)
        outcome = "wins" if tried.won else f"does not win: {tried.reason}"
        rounds.measurer.report(f"{side.framework} {candidate.change} {outcome}")
        side.advance(tried.won)


def _judge(
    rounds: TuneRounds,
    sides: Sequence[_Side],
    candidates: Sequence[Candidate],
    title: str,
    least_gain: float,
    attempt: int = 0,
) -> list[Tried]:
    """Measure a duel of each side. One that was disturbed is measured once more, on fresh starts:
    that shows nothing about the candidate."""
    pairs = [
        (side.make_arm(each.best), side.make_arm(each.settings))
        for side, each in zip(sides, candidates, strict=True)
    ]
    duels = rounds.measure(pairs, title, attempt=attempt)
    for side, duel in zip(sides, duels, strict=True):
        if not side.tried:
            _require_default(rounds, duel)
    judged = [
        rounds.judge(duel, candidate, least_gain)
        for duel, candidate in zip(duels, candidates, strict=True)
    ]
    again = [number for number, each in enumerate(judged) if each.undecided]
    if again and attempt % _ATTEMPTS == 0:
        repeated = _judge(
            rounds,
            [sides[number] for number in again],
            [candidates[number] for number in again],
            f"{title}, measured again",
            least_gain,
            attempt + 1,
        )
        for number, tried in zip(again, repeated, strict=True):
            judged[number] = tried
    return judged


def _require_judgement(sides: Sequence[_Side]) -> None:
    for side in sides:
        disturbed = [each.change for each in side.tried if each.undecided]
        if disturbed and len(disturbed) == len(side.tried):
            raise CampaignIncompleteError(
                f"other processes disturbed every duel of {side.framework} twice "
                f"({side.tried[0].reason}); nothing is stored: search again with a new --campaign "
                "when the machine is quiet"
            )
        if disturbed:
            side.ended += f"; disturbed twice, and so not judged: {', '.join(disturbed)}"


def _require_default(rounds: TuneRounds, duel: PlannedDuel) -> None:
    document = rounds.read(duel)
    first = document["contenders"][0] if document else {"status": "lost", "failure": None}
    if first["status"] != "ok":
        reason = (first["failure"] or {}).get("reason", "the duel left no result")
        raise CampaignIncompleteError(
            f"{duel.contenders[0].name} does not run with its default settings on {duel.title}, so "
            f"there is nothing to search: {first['status']}: {reason}"
        )


def _confirm(rounds: TuneRounds, sides: Sequence[_Side]) -> None:
    """Measure each winner once more, against its defaults and on fresh starts: of several
    candidates the luckiest wins. Without a gain there the defaults stay."""
    changed = [side for side in sides if any(each.won for each in side.tried)]
    defaults = [{key: values[0] for key, values in side.choices.items()} for side in changed]
    candidates = [
        Candidate(change="all", best=default, settings=side.best)
        for side, default in zip(changed, defaults, strict=True)
    ]
    title = "the winners against the defaults"
    judged = _judge(rounds, changed, candidates, title, 0.0, attempt=_ATTEMPTS)
    for side, default, tried in zip(changed, defaults, judged, strict=True):
        side.tried.append(tried)
        if not tried.won:
            side.best = default
            side.ended += f"; the defaults stay: measured again, {tried.reason}"


def _describe(rounds: TuneRounds, side: _Side) -> TunedSettings:
    request, release = rounds.request, rounds.releases[side.request]
    documents = [document for duel in rounds.plan.duels if (document := rounds.read(duel))]
    measured = [
        (document, contender)
        for document in documents
        for contender in document["contenders"]
        if contender["framework"] == side.framework
    ]
    if not measured:
        raise CampaignIncompleteError(f"no duel of {side.framework} left a result; rerun")
    document, contender = measured[0]
    return TunedSettings(
        schema=SCHEMA,
        method=METHOD,
        workload=request.workload,
        case=rounds.case,
        framework=side.framework,
        version=release.version,
        device=document["allocation"]["device"],
        settings=drop_defaults(side.best, side.choices),
        campaign=rounds.campaign,
        made_at=datetime.now(UTC).isoformat(),
        environment=contender["environment"],
        starts=request.starts,
        rounds=request.rounds,
        least_gain=request.gain,
        most_candidates=request.candidates,
        ended=side.ended,
        tried=tuple(side.tried),
    )

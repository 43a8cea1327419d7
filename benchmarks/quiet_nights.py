"""Real histories in which nothing changed: two of each framework meet, start after start.

    .venv/bin/python benchmarks/quiet_nights.py --starts 120

A start (fresh processes of all four) stands for a night. Each pair of contenders gives a history of
ratios, and each contender one of step times, which hold what the machine did meanwhile. Rounds that
others disturbed are left out; a start without any is a night that is missing. Starts are added to
those of `results/quiet-nights.json` (`--fresh` starts over); `verdicts.py real` lets the detectors
loose on them.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from one_duel import RESULTS, describe_machine, measure, store_results
from rich.progress import Progress

from benchcore.cell.measure.degraded import find_degraded
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.requests import parse_arm
from benchcore.protocol import DuelLimits
from benchcore.state import State, open_state

NAME = "quiet-nights"
CASES = ("mlp/train_b128", "mlp/infer_b32")
_ARMS = ("jax", "jax", "torch,compile=none", "torch,compile=none")
_AT_ONCE = 10
"""Starts of a duel; an interruption loses at most one duel."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of the four: microseconds a step of each in every round, None where others
    disturbed the block."""

    case: str
    at: str
    step_us: dict[str, list[float | None]]


def main() -> None:
    """Measure until each case has its starts; keep them after every duel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=120, help="of each case, older ones included")
    parser.add_argument("--case", action="append", help=f"default: {' and '.join(CASES)}")
    parser.add_argument("--state", type=Path, default=Path("state"))
    parser.add_argument("--python", help="interpreter version, such as 3.13")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    options = parser.parse_args()
    state, cases = open_state(options.state), options.case or list(CASES)
    kept = {"machines": [], "starts": []} if options.fresh else load()
    done = {case: sum(each["case"] == case for each in kept["starts"]) for case in cases}
    with Progress() as progress:
        bar = progress.add_task("starts", total=options.starts * len(cases))
        while min(done.values()) < options.starts:
            progress.update(bar, completed=sum(done.values()))
            case = min(cases, key=done.__getitem__)
            document = _measure(case, min(_AT_ONCE, options.starts - done[case]), state, options)
            starts = read_starts(case, document)
            kept["starts"] += [asdict(start) for start in starts]
            done[case] += len(starts)
            machine = describe_machine(document)
            kept["machines"] += [machine] if machine not in kept["machines"] else []
            store_results(NAME, kept, indent=None)


def load() -> dict[str, list[Any]]:
    """What was measured so far: `machines` and `starts`."""
    file = RESULTS / f"{NAME}.json"
    return json.loads(file.read_text()) if file.exists() else {"machines": [], "starts": []}


def _measure(case: str, starts: int, state: State, options: argparse.Namespace) -> dict[str, Any]:
    workload, name = case.split("/")
    arms = tuple(parse_arm(text) for text in _ARMS)
    match = Match(workload=workload, case=name, arms=arms, expected_s=12 * starts)
    profile = Profile(
        name=NAME,
        matches=(match,),
        limits=DuelLimits(
            starts=starts, rounds=6, block_ms=50.0, warm_up_limit_s=1.0, passes=False
        ),
    )
    return measure(profile, state, python=options.python)


def read_starts(case: str, document: dict[str, Any]) -> list[Start]:
    """The starts of a duel in their order, as nights.

    Raises ValueError where a contender of the duel did not end well: nothing would be left of it.
    """
    sides: dict[str, list[list[float | None]]] = {}
    for number, contender in enumerate(document["contenders"]):
        if contender["status"] != "ok":
            failure = contender["failure"]
            raise ValueError(f"wanted four contenders that run, got {contender['name']}: {failure}")
        twin = "twin of " if number % 2 else ""
        starts = contender["starts"]
        sides[f"{twin}{contender['framework']}"] = [_read_rounds(start) for start in starts]
    return [
        Start(
            case=case,
            at=start["started_at"][:19],
            step_us={name: rounds[number] for name, rounds in sides.items()},
        )
        for number, start in enumerate(document["contenders"][0]["starts"])
    ]


def _read_rounds(start: dict[str, Any]) -> list[float | None]:
    degraded = find_degraded(start["blocks"])
    return [
        None if each["round"] in degraded else round(each["elapsed_ns"] / each["steps"] / 1000, 3)
        for each in start["blocks"]
    ]


if __name__ == "__main__":
    main()

"""Count what a simulated site found, what was false, and which of the false events were returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import unsteady
from chain import NOISES, STATES, Outcome

_STAYS = ("false of a machine's first stay", "false of a machine's return")
"""Of two machines that alternate. Nothing distinguishes a machine's first stay from a change that
lasts; when a machine returns, its level was there before."""
_NEAR = 5
"""Nights by which an event may be early or late."""


def rate(outcome: Outcome) -> list[dict[str, Any]]:
    """A row per noise and state of nights, and one for all: what was found, and what was false."""
    groups: list[tuple[str, list[int]]] = [("all", list(range(len(outcome.series))))]
    for state in STATES:
        of_state = [n for n, one in enumerate(outcome.series) if one.state == state]
        groups.append((state, of_state))
        groups += [
            (f"{state}, {noise:.1%}", [n for n in of_state if outcome.series[n].noise == noise])
            for noise in NOISES
        ]
    modes = [number for number, one in enumerate(outcome.series) if one.bimodal]
    groups.append(("two modes", modes))
    for kind in outcome.site.kinds if len(outcome.site.kinds) > 1 else ():
        groups.append((kind, [n for n, one in enumerate(outcome.series) if one.kind == kind]))
    rows = [{"series of": name, **_count(outcome, members)} for name, members in groups]
    rows[0] |= {
        "starts": outcome.starts,
        "events grown": outcome.grown,
        **{f"suspicions by {name}": count for name, count in sorted(outcome.suspicions.items())},
        **dict(sorted(outcome.verdicts.items())),
    }
    return rows


def _count(outcome: Outcome, members: Sequence[int]) -> dict[str, Any]:
    tally: Counter[str] = Counter()
    delays: list[int] = []
    for number in members:
        events = [event for event in outcome.events if event.series == number]
        for truth in outcome.series[number].truths:
            kind = "machine" if truth.culprit == "infrastructure" else "framework"
            tally[f"{kind} shifts"] += 1
            near = [
                event
                for event in events
                if abs(event.since - truth.night) <= _NEAR and event.night >= truth.night
            ]
            right = [event for event in near if event.culprit == truth.culprit]
            if right:
                delays.append(right[0].night - truth.night)
                tally[f"{kind} found"] += 1
                tally[f"{kind} in 3 nights"] += delays[-1] <= 3
            tally["opened again"] += max(len(near) - 1, 0)
            tally["wrongly blamed"] += bool(near) and not right
            events = [event for event in events if event not in near]
        tally["false"] += len(events)
        of_machine = [event for event in events if event.culprit == "infrastructure"]
        tally["false infrastructure"] += len(of_machine)
        unsteadiness = outcome.series[number].unsteadiness
        if unsteadiness is not None and unsteadiness.machine is not None:
            of_stays = [unsteady.has_returned(unsteadiness.machine, e.night) for e in of_machine]
            tally["false of a machine's first stay"] += of_stays.count(False)
            tally["false of a machine's return"] += of_stays.count(True)
    names = ("framework shifts", "framework found", "framework in 3 nights", "machine shifts")
    names += ("machine found", "machine in 3 nights", "wrongly blamed", "opened again", "false")
    nights = len(members) * outcome.site.nights
    return {
        **{name: tally[name] for name in (*names, "false infrastructure", *_STAYS)},
        "false per 1,000 series-nights": 1000 * tally["false"] / max(nights, 1),
        "mean delay": float(np.mean(delays)) if delays else None,
    }

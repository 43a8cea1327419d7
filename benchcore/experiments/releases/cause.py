"""Which package is behind a release's largest change, searched with the time that is left of its
budget."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchcore.errors import CampaignIncompleteError, EnvironmentBuildError, UserError
from benchcore.experiments.changes.dependencies import run_dependency_search
from benchcore.experiments.changes.pairs import BisectTarget
from benchcore.experiments.rounds import Measurer, RunContext
from benchcore.planning.matrix import Plan
from benchcore.state import State
from benchcore.verdict.confirmation.decide import LOOKS

_Cause = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TimedMeasurer:
    """Measures rounds until a moment of `time.monotonic()`; later ones are incomplete."""

    measurer: Measurer
    over: float

    def measure(self, plan: Plan, title: str) -> None:
        """Raises CampaignIncompleteError also once the time is spent."""
        if time.monotonic() >= self.over:
            raise CampaignIncompleteError("the time budget was spent")
        self.measurer.measure(plan, title)

    def report(self, text: str) -> None:
        """Show one line of progress."""
        self.measurer.report(text)


def search_cause(
    target: BisectTarget | None, context: RunContext, state: State, measurer: TimedMeasurer
) -> _Cause | None:
    """The answer of `run_dependency_search` between both versions' locks; None without a change or
    without time. If the locks can't be compared, it blames nothing and its summary has the reason.
    """
    if target is None or time.monotonic() >= measurer.over:
        return None
    try:
        return run_dependency_search(target, context, LOOKS, state, measurer)
    except (UserError, EnvironmentBuildError) as error:
        return {"summary": f"the package behind it was not searched: {error}", "culprits": []}


def list_blamed(cause: _Cause | None) -> list[str]:
    """The packages that a search found, those of the largest effect first; empty = none."""
    return [name for each in (cause or {}).get("culprits", ()) for name in each["packages"]]


def describe_cause(cause: Mapping[str, Any] | None) -> str:
    """` Cause: jaxlib makes a step take 1.37 times as long (1.31 to 1.43).`; empty if nothing was
    searched."""
    return f" Cause: {cause['summary']}." if cause else ""

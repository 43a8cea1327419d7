"""Slows a program down by a known share, to see whether our own verdicts notice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from benchcore.program import Program
from benchcore.workloads.settings import HANDICAP


def hold_back(program: Program, settings: Mapping[str, Any]) -> Program:
    """The program with as much more work as its settings say, of the very kind that it does."""
    percent = int(settings.get(HANDICAP, 0))
    if percent == 0:
        return program
    return dataclasses.replace(program, step=_do_more(program.step, percent))


def _do_more(step: Callable[[], object], percent: int) -> Callable[[], object]:
    """A step that does its work twice as often as it takes for so many per cent more, evenly."""
    owed = 0

    def longer_step() -> object:
        nonlocal owed
        owed += percent
        if owed < 100:
            return step()
        owed -= 100
        return [step(), step()]

    return longer_step

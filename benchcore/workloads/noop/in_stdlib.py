"""The empty step in plain Python: the harness's loop and clock only."""

from __future__ import annotations

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.noop.spec import Case
from benchcore.workloads.settings import read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """A step that does nothing."""
    read_settings(settings, ("none",))
    return Program(step=lambda inputs: None)

"""Environment variables that a contender's settings ask for, before its framework is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchcore.cell.ladder import RUNGS


def xla_flags_of(settings: Mapping[str, Any], device: str) -> tuple[str, ...]:
    """XLA flags of an arm, which are about GPUs only; not run on one."""
    if device == "cpu":
        return ()
    graphs = settings.get("command_buffers", "on")
    flags = ("--xla_gpu_enable_command_buffer=",) if graphs == "off" else ()
    cures = [rung.flags for rung in RUNGS if rung.name == settings.get("cure")]
    return (*flags, *(flag for cure in cures for flag in cure))

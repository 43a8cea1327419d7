"""Environment variables that a contender's settings ask for, before its framework is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def xla_flags_of(settings: Mapping[str, Any], device: str) -> tuple[str, ...]:
    """XLA flags of an arm. Command buffers (CUDA graphs) exist on a GPU only; not run on one."""
    if device != "cpu" and settings.get("command_buffers") == "off":
        return ("--xla_gpu_enable_command_buffer=",)
    return ()

"""The empty step in PyTorch: the cost of a synchronisation with an empty queue."""

from __future__ import annotations

import torch

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.noop.spec import SETTINGS, Case
from benchcore.workloads.settings import TORCH_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """A step that returns a tensor made by the build."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    ready = torch.zeros((), device=wanted.device)
    return Program(step=lambda inputs: ready)

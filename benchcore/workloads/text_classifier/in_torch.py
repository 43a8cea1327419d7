"""torch's side: the shared transformer."""

from __future__ import annotations

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.networks import in_torch as networks
from benchcore.workloads.networks.transformer.in_torch import Transformer
from benchcore.workloads.settings import TORCH_COMPILE, read_settings
from benchcore.workloads.text_classifier.spec import SETTINGS, SIZES, Case


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the transformer on the device in the settings."""
    wanted = read_settings(settings, TORCH_COMPILE, SETTINGS["torch"])
    return networks.build(case, arrays, wanted, Transformer(SIZES[case.size]))

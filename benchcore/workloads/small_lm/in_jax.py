"""JAX's side: the shared transformer."""

from __future__ import annotations

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.networks.transformer import in_jax as transformer
from benchcore.workloads.settings import JAX_COMPILE, read_settings
from benchcore.workloads.small_lm.spec import SETTINGS, SIZES, Case


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Set up the transformer on the device in the settings."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    return transformer.build(case, arrays, wanted, SIZES[case.size])

"""The empty step in JAX: the cost of waiting for an array that is ready."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchcore.program import Arrays, Program, Settings
from benchcore.workloads.noop.spec import SETTINGS, Case
from benchcore.workloads.settings import JAX_COMPILE, read_settings


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """A step that returns an array made by the build."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    device = jax.devices(wanted.platform)[wanted.ordinal]
    ready = jax.block_until_ready(jnp.zeros((), jnp.float32, device=device))
    return Program(step=lambda inputs: ready)

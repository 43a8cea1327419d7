"""Nights of a series of JAX against torch on the tiny perceptron."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from benchcore.verdict.history.series import Night, SeriesKey

KEY = SeriesKey(
    workload="mlp",
    case_name="tiny",
    track="default",
    a_arm="jax-jit",
    b_arm="torch-eager",
    device_fingerprint="0" * 16,
)


def make_night(number: int, log: float, version: str = "1", **more: Any) -> Night:
    """The night of that number, from 2026-01-01 on, with this version of JAX."""
    return Night(
        key=KEY,
        at=datetime(2026, 1, 1, 3, tzinfo=UTC) + timedelta(days=number),
        duel_run=f"{number:016x}",
        log_ratio=log,
        a=f"jax-jit-{version}",
        b="torch-eager-2",
        a_environment=f"jax-{version}",
        b_environment="torch-2",
        **more,
    )

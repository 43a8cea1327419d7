"""JAX in several processes, each with one device: how they meet, and how they share the CPU."""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any

from benchcore.cell.runtimes.runtime import FROZEN_S, Place
from benchcore.device_names import parse_device
from benchcore.program import UnsupportedError

_MEETING_S = 120
"""Within this all must have imported JAX: the conductor's own limit is usually shorter."""
_ENDING_S = 5
_NEEDED = "heartbeat_timeout_seconds"


def join_group(jax: Any, place: Place, device: str, threads: int) -> None:
    """Meet the other processes at `place.address`, before JAX looks for its devices.

    Each process gets its part of the CPU's threads, and of several GPUs one. NCCL has not been run
    on a GPU. Raises UnsupportedError where JAX is too old.
    """
    initialize = jax.distributed.initialize
    if _NEEDED not in inspect.signature(initialize).parameters:
        raise UnsupportedError(
            f"wanted {_NEEDED} of jax.distributed.initialize, which JAX {jax.__version__} lacks: "
            "it would end a frozen process; choose processes=one, or a newer JAX"
        )
    if device == "cpu":
        os.environ["NPROC"] = str(max(1, threads // place.size))
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        _keep_gloo_on_loopback(jax)
    jax.config.update("jax_enable_preemption_service", False)  # it would catch SIGTERM
    own = None if device == "cpu" else [parse_device(device).ordinal + place.rank]
    initialize(
        place.address,
        place.size,
        place.rank,
        local_device_ids=own,
        cluster_detection_method="deactivate",
        coordinator_bind_address=place.address,
        initialization_timeout=_MEETING_S,
        heartbeat_timeout_seconds=FROZEN_S,
        shutdown_timeout_seconds=_ENDING_S,
    )


def _keep_gloo_on_loopback(jax: Any) -> None:
    """It would look the machine's own name up otherwise, and JAX has no option for it."""
    library = jax._src.lib._jax
    make = library.make_gloo_tcp_collectives
    library.make_gloo_tcp_collectives = functools.partial(make, hostname="127.0.0.1")

"""How the harness loop waits for JAX, sets its precision, and reads back what was in force."""

from __future__ import annotations

import os
import time
from typing import Any

from benchcore.cell.stage_clock import NestedClock
from benchcore.program import Program

# Durations that JAX reports of each compilation, as our stages (jax.monitoring; names as of 0.4.36
# to 0.12).
_STAGE_OF_EVENT = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
_CACHE_HIT = "/jax/compilation_cache/cache_hits"
# "highest" is IEEE float32 on every device; the rest as in JAX's precision documentation.
_MATMUL_PRECISION = {"fp32_ieee": "highest", "tf32": "tensorfloat32", "bf16": "default"}


class JaxRuntime:
    """JAX on one device."""

    def __init__(self) -> None:
        self._clock = NestedClock(("trace", "lower", "compile"))
        self._num_compilations = 0
        self._num_cache_hits = 0

    def import_framework(self) -> None:
        """Import jax and listen to its compilations from the first one on."""
        import jax

        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)
        self._jax = jax

    def _on_duration(self, event: str, duration: float, **_: object) -> None:
        stage = _STAGE_OF_EVENT.get(event)
        if stage:
            self._clock.tell(stage, duration, time.perf_counter())
            self._num_compilations += stage == "compile"

    def _on_event(self, event: str, **_: object) -> None:
        self._num_cache_hits += event == _CACHE_HIT

    def initialise(self, *, device: str, precision: str, threads: int) -> None:
        """Set the matmul precision and wait for one array on the device.

        XLA's CPU client takes its threads from the process's CPU affinity, which the conductor
        gives to every contender alike; `threads` is not settable after that.
        """
        if precision not in _MATMUL_PRECISION:
            raise ValueError(
                f"wanted precision {precision!r}, but JAX here knows {sorted(_MATMUL_PRECISION)}"
            )
        self._jax.config.update("jax_default_matmul_precision", _MATMUL_PRECISION[precision])
        platform = "cpu" if device == "cpu" else "gpu"
        self._device = self._jax.devices(platform)[0]
        self._jax.block_until_ready(self._jax.device_put(0.0, self._device))

    def synchronise(self, outputs: object) -> None:
        """Block on every array. A deleted one was donated to a later step, which is waited for."""
        leaves = self._jax.tree_util.tree_leaves(outputs)
        self._jax.block_until_ready(
            [leaf for leaf in leaves if isinstance(leaf, self._jax.Array) and not leaf.is_deleted()]
        )

    def compile_seconds(self) -> dict[str, float | None]:
        """Sums of JAX's own duration events, of which one may lie within another."""
        return dict(self._clock.seconds)

    def num_compilations(self) -> int:
        """Backend compilations, cached ones included: each stalls a step."""
        return self._num_compilations

    def num_cache_hits(self) -> int | None:
        """Compilations that the persistent cache made short."""
        return self._num_cache_hits

    def planned_bytes(self, program: Program) -> int | None:
        """XLA's plan of the step: arguments, results that are not arguments, and scratch space."""
        if program.lower is None:
            return None
        plan = program.lower().compile().memory_analysis()
        if plan is None:
            return None
        results = plan.output_size_in_bytes - plan.alias_size_in_bytes
        return plan.argument_size_in_bytes + results + plan.temp_size_in_bytes

    def allocator_peak_bytes(self) -> int | None:
        """Peak of the device's allocator; the CPU client keeps none."""
        statistics = self._device.memory_stats()
        return None if statistics is None else statistics.get("peak_bytes_in_use")

    def effective(self) -> dict[str, Any]:
        """Precision, platform, flags and versions as JAX sees them."""
        import jaxlib

        config = self._jax.config
        return {
            "versions": {"jax": self._jax.__version__, "jaxlib": jaxlib.__version__},
            "platform": self._device.platform,
            "device_kind": self._device.device_kind,
            "matmul_precision": config.jax_default_matmul_precision,
            "x64": bool(config.jax_enable_x64),
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "platform_version": self._device.client.platform_version.splitlines()[0],
        }


def make_runtime() -> JaxRuntime:
    """The runtime of JAX."""
    return JaxRuntime()

"""How the harness loop waits for JAX, sets its precision, and reads back what was in force."""

from __future__ import annotations

import os
from typing import Any

# Durations that JAX reports of each compilation, as our stages (jax.monitoring; names as of 0.4.36
# to 0.12).
_STAGE_OF_EVENT = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
# "highest" is IEEE float32 on every device; the rest as in JAX's precision documentation.
_MATMUL_PRECISION = {"fp32_ieee": "highest", "tf32": "tensorfloat32", "bf16": "default"}


class JaxRuntime:
    """JAX on one device."""

    def __init__(self) -> None:
        self._seconds = {"trace": 0.0, "lower": 0.0, "compile": 0.0}
        self._num_compilations = 0

    def import_framework(self) -> None:
        """Import jax and listen to its compilations from the first one on."""
        import jax

        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        self._jax = jax

    def _on_duration(self, event: str, duration: float, **_: object) -> None:
        stage = _STAGE_OF_EVENT.get(event)
        if stage:
            self._seconds[stage] += duration
            self._num_compilations += stage == "compile"

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
        """Sums of JAX's own duration events."""
        return dict(self._seconds)

    def num_compilations(self) -> int:
        """Backend compilations, cached ones included: each stalls a step."""
        return self._num_compilations

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

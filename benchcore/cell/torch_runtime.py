"""How the harness loop waits for torch, sets its precision, and reads back what was in force."""

from __future__ import annotations

import sys
from typing import Any

from benchcore.program import Program

_FP32_PRECISION = {"fp32_ieee": "ieee", "tf32": "tf32", "bf16": "ieee"}


class TorchRuntime:
    """torch on one device."""

    def import_framework(self) -> None:
        """Import torch."""
        import torch

        self._torch = torch

    def initialise(self, *, device: str, precision: str, threads: int) -> None:
        """Set threads and the precision switches; bring up the device with one tensor."""
        torch = self._torch
        if precision not in _FP32_PRECISION:
            raise ValueError(
                f"wanted precision {precision!r}, but torch here knows {sorted(_FP32_PRECISION)}"
            )
        if device != "cpu" and not torch.cuda.is_available():
            raise ValueError(f"wanted device {device!r}, but this torch sees no GPU; plan 'cpu'")
        torch.set_num_threads(threads)
        self._set_precision(_FP32_PRECISION[precision])
        self._device = torch.device(device)
        torch.zeros(1, device=self._device)
        self._wait()

    def _set_precision(self, fp32: str) -> None:
        torch = self._torch
        if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 9):
            torch.backends.cuda.matmul.fp32_precision = fp32
            torch.backends.cudnn.conv.fp32_precision = fp32
        else:  # the switches of before 2.9; never mixed with the ones above
            torch.backends.cuda.matmul.allow_tf32 = fp32 == "tf32"
            torch.backends.cudnn.allow_tf32 = fp32 == "tf32"

    def _wait(self) -> None:
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)

    def synchronise(self, outputs: object) -> None:
        """Wait for the device; on a CPU torch has already finished."""
        self._wait()

    def compile_seconds(self) -> dict[str, float | None]:
        """Dynamo's own clock: `trace` is its front end, `compile` the back end.

        The back end runs within a frame's compilation, but for a backward pass, which is compiled
        when it is first needed.
        """
        dynamo = self._dynamo()
        if dynamo is None or not self.num_compilations():
            return {"trace": None, "lower": None, "compile": None}
        spent = dynamo.utils.calculate_time_spent()
        within = spent.get("backend_compile", 0.0)
        trace = spent.get("entire_frame_compile", 0.0) - within
        backward = spent.get("entire_backward_compile", 0.0)
        return {"trace": max(0.0, trace), "lower": None, "compile": within + backward}

    def num_compilations(self) -> int:
        """Graphs that dynamo compiled."""
        dynamo = self._dynamo()
        return 0 if dynamo is None else int(dynamo.utils.counters["stats"]["unique_graphs"])

    def num_cache_hits(self) -> int | None:
        """Graphs whose compiled form was found on disk, by either of the two caches in a row."""
        dynamo = self._dynamo()
        if dynamo is None or not self.num_compilations():
            return None
        counters = dynamo.utils.counters
        whole = counters["aot_autograd"]["autograd_cache_hit"]
        return int(max(whole, counters["inductor"]["fxgraph_cache_hit"]))

    def planned_bytes(self, program: Program) -> int | None:
        """torch does not plan a step's memory."""
        return None

    def _dynamo(self) -> Any:
        """The compiler, if the workload brought it in: eager work never pays for its import."""
        return sys.modules.get("torch._dynamo")

    def allocator_peak_bytes(self) -> int | None:
        """Peak of the caching allocator; there is none on a CPU."""
        if self._device.type == "cpu":
            return None
        return self._torch.cuda.max_memory_allocated(self._device)

    def effective(self) -> dict[str, Any]:
        """Precision, threads and versions as torch sees them."""
        torch = self._torch
        return {
            "versions": {
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                "cudnn": torch.backends.cudnn.version(),
            },
            "threads": torch.get_num_threads(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }


def make_runtime() -> TorchRuntime:
    """The runtime of torch."""
    return TorchRuntime()

"""Tracks: which arms meet in `default` (what a user gets by doing nothing) and in `tuned`."""

from __future__ import annotations

from collections.abc import Mapping

from benchcore.profiles import Arm

_JAX = {"compile": "jit"}
_TORCH_TUNED = {"compile": "max-autotune", "cudnn_benchmark": "on"}

TRACKS: Mapping[str, tuple[Arm, ...]] = {
    "default": (
        Arm(name="jax-jit", request="jax@newest", settings=_JAX),
        Arm(name="torch-eager", request="torch@newest", settings={"compile": "none"}),
        Arm(name="torch-compile", request="torch@newest", settings={"compile": "default"}),
    ),
    # XLA donates, autotunes and records command buffers by itself: torch is asked for the same.
    "tuned": (
        Arm(name="jax-jit", request="jax@newest", settings=_JAX),
        Arm(
            name="torch-compile-max-autotune-cudnn-benchmark",
            request="torch@newest",
            settings=_TORCH_TUNED,
        ),
        Arm(
            name="torch-compile-max-autotune-cudnn-benchmark-channels-last",
            request="torch@newest",
            settings={**_TORCH_TUNED, "layout": "channels_last"},
        ),
    ),
}
"""The tuned track is for GPUs, and has not been run on one. Workloads without a convolution have
no layout to choose: their matches leave the last arm out."""

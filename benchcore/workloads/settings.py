"""Reads a contender's settings as every workload's `build` takes them; unknown ones are errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

JAX_COMPILE = ("jit",)
TORCH_COMPILE = (
    "none",
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
)
"""`none` is eager; the others are the `mode` of `torch.compile`."""


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """The settings a workload itself obeys; precision and XLA flags belong to the runtime."""

    device: str
    """`cpu` or `cuda:N`, as torch writes it."""
    compile: str

    @property
    def platform(self) -> str:
        """The device's kind, as `jax.devices` takes it: `cpu` or `cuda`."""
        return self.device.partition(":")[0]

    @property
    def ordinal(self) -> int:
        """Which device of its platform."""
        return int(self.device.partition(":")[2] or 0)


def read_settings(settings: Mapping[str, Any], compile_modes: tuple[str, ...]) -> BuildSettings:
    """Check the settings. Raises ValueError on a missing or unknown key, or an unknown value."""
    if set(settings) != {"device", "compile"}:
        raise ValueError(
            f"wanted the settings 'device' and 'compile', got {sorted(settings)!r}; "
            "name exactly these two in the contender's settings"
        )
    device, mode = settings["device"], settings["compile"]
    if not isinstance(device, str) or not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ValueError(f"no device {device!r}; use 'cpu', 'cuda' or 'cuda:N'")
    if mode not in compile_modes:
        raise ValueError(f"no compile mode {mode!r} here; modes are {', '.join(compile_modes)}")
    return BuildSettings(device=device, compile=mode)

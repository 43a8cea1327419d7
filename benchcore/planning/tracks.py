"""Arms, and which of them each track compares: `default` (a user's defaults) and `tuned` (what a
search found best)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchcore.protocol import DEFAULT_TRACK


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A contender before its version is known: what a series follows over time."""

    name: str
    request: str
    settings: Mapping[str, Any] = field(default_factory=dict)


STDLIB = Arm(name="stdlib", request="stdlib", settings={"compile": "none"})
JAX_NEWEST = Arm(name="jax-jit", request="jax@newest", settings={"compile": "jit"})
JAX_PREVIOUS = Arm(name="jax-jit", request="jax@previous", settings={"compile": "jit"})
TORCH_PREVIOUS = Arm(
    name="torch-compile", request="torch@previous", settings={"compile": "default"}
)
TORCH_EAGER_PREVIOUS = Arm(
    name="torch-eager", request="torch@previous", settings={"compile": "none"}
)
JAX_EAGER = Arm(name="jax-eager", request="jax@newest", settings={"compile": "none"})
TORCH_EAGER = Arm(name="torch-eager", request="torch@newest", settings={"compile": "none"})
TORCH_COMPILE = Arm(name="torch-compile", request="torch@newest", settings={"compile": "default"})
JAX_NO_COMMAND_BUFFERS = Arm(
    name="jax-jit-no-command-buffers",
    request="jax@newest",
    settings={"compile": "jit", "command_buffers": "off"},
)
JAX_NO_DONATION = Arm(
    name="jax-jit-no-donation",
    request="jax@newest",
    settings={"compile": "jit", "donate": "no"},
)
TORCH_REDUCE_OVERHEAD = Arm(
    name="torch-compile-reduce-overhead",
    request="torch@newest",
    settings={"compile": "reduce-overhead"},
)
TORCH_CHANNELS_LAST = Arm(
    name="torch-compile-channels-last",
    request="torch@newest",
    settings={"compile": "default", "layout": "channels_last"},
)
CONTROL_ARMS = (JAX_PREVIOUS, TORCH_PREVIOUS)
"""Each framework's older version: what the machine does to a night cancels against it."""
EAGER_ARMS = (JAX_EAGER, TORCH_EAGER)
"""Each operation by itself, as in NumPy: the workloads `ops` and `ensemble` have JAX's."""
GRAPH_ARMS = (JAX_NO_COMMAND_BUFFERS, TORCH_REDUCE_OVERHEAD)
"""In addition to the default arms, which pair JAX's graphs with torch's lack of them: graphs on
both sides, and on neither. Not in the tuned track, where such a difference voids a pair."""
STRATEGY_ARMS = tuple(
    tuple(
        Arm(
            name=f"{arm.name}-{strategy.replace('_', '-')}",
            request=arm.request,
            settings={**arm.settings, "strategy": strategy},
        )
        for arm in (JAX_NEWEST, TORCH_COMPILE)
    )
    for strategy in ("fully_sharded", "tensor")
)
"""How several devices may train, besides on parts of the batch: both sides of each strategy."""

TUNED_TRACK = "tuned"
TRACKS: Mapping[str, tuple[Arm, ...]] = {
    DEFAULT_TRACK: (JAX_NEWEST, TORCH_EAGER, TORCH_COMPILE),
    TUNED_TRACK: (
        Arm(name="jax-tuned", request="jax@newest"),
        Arm(name="torch-tuned", request="torch@newest"),
    ),
}
"""The arms of the tuned track have no settings yet: a plan takes those that `deadheat tune` found
best for the case, the version and the device (`benchcore.planning.tuning.tuned.use_tuned`)."""

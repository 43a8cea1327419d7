"""The result of a workload's `build`: the work to measure, and the evidence for its correctness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # a stdlib-only contender runs where numpy is not installed
    import numpy as np

Precision = Literal["fp32_ieee", "tf32", "bf16", "bf16_autocast"]
"""`bf16`: parameters and activations; `bf16_autocast`: float32 parameters, computed in bf16."""


REFERENCE = "fp64"
"""Precision of the reference: float64 throughout. No case is timed in it."""


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """The same initial parameters and inputs for every contender, by canonical name."""

    params: Mapping[str, np.ndarray]
    inputs: Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Program:
    """One contender's work, set up and ready.

    `step` enqueues one step and returns everything that must still finish (only this is timed).
    `evidence` runs the same compiled work from the initial state and returns host arrays by
    canonical name; the conductor compares them between contenders. It must not change what `step`
    does afterwards. `lower` returns the compiled step in the framework's own form, if it has one
    (JAX: `jax.stages.Lowered`), to read the compiler's plan.

    `held` returns what the manifest is read from after the run: the current `params` and `inputs`,
    `output_dtype` of the forward pass, `state_update` (`in place`, `copied`, `no state`),
    `rotation` if there are several input buffers (tuples of arrays, the first is the input), for
    JAX `function` with its `arguments`, for torch its `module`.

    `parts` locates differences in the evidence: `layer/NAME` is the output of a layer, in forward
    order, `gradient/NAME` one array's part of the quantity `gradient`. Canonical layout.
    """

    step: Callable[[], object]
    evidence: Callable[[], Mapping[str, np.ndarray]]
    lower: Callable[[], Any] | None = None
    held: Callable[[], Mapping[str, Any]] = dict
    parts: Callable[[], Mapping[str, np.ndarray]] = dict
    training: Callable[[], Training] | None = None


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training on image files, with the same compiled step that the evidence checks.

    `layout` is the layout of its images. `stage` copies a batch (uint8 images, int32 labels) into
    host memory of the program. `send` starts the copy to the device and may return before it ends.
    `learn` enqueues one step and returns its loss; `validate` counts the images whose largest logit
    is at their label (-1 = no label). Both results stay on the device; `owed` returns what is still
    unfinished there. `see` returns the `pixels` and `labels` that a step gets, which are compared
    too. `reset` restores the initial state.
    """

    layout: Literal["NHWC", "NCHW"]
    stage: Callable[[np.ndarray, np.ndarray], Any]
    send: Callable[[Any], Any]
    learn: Callable[[Any], Any]
    validate: Callable[[Any], Any]
    see: Callable[[Any], Mapping[str, np.ndarray]]
    owed: Callable[[], object]
    reset: Callable[[], object]


Settings = Mapping[str, Any]
Build = Callable[[Any, Arrays, Settings], Program]

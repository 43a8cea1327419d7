"""The result of a workload's `build`: the work to measure, and the evidence that it is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # a stdlib-only contender runs where numpy is not installed
    import numpy as np

Precision = Literal["fp32_ieee", "tf32", "bf16", "bf16_autocast"]
"""`bf16`: parameters and activations; `bf16_autocast`: float32 parameters, computed in bf16."""


REFERENCE = "fp64"
"""The precision of the reference, in which no case is timed: float64 throughout."""


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """The same initial parameters and inputs for every contender, under canonical names."""

    params: Mapping[str, np.ndarray]
    inputs: Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Program:
    """One contender's work, set up and ready.

    `step` enqueues one step and returns everything the device still owes (the clock sees only
    this). `evidence` runs the same compiled work from the initial state and returns host arrays
    under canonical names; the conductor compares them between contenders. It must not disturb
    what `step` does afterwards. `lower` gives the compiled step in the framework's own form, for
    what its compiler planned, where there is such a thing (JAX: `jax.stages.Lowered`).

    `held` hands out what the manifest is read from, after the work: `params` and `inputs` as they
    are now, `output_dtype` of the forward pass, `state_update` (`in place`, `copied`, `no state`),
    `rotation` where several input buffers take turns (tuples of arrays, the first the input's),
    for JAX `function` with its `arguments`, for torch its `module`.

    `parts` shows where evidence begins to differ: `layer/NAME` is the output of a layer, in
    forward order, `gradient/NAME` an array's part of the quantity `gradient`. Canonical layout.
    """

    step: Callable[[], object]
    evidence: Callable[[], Mapping[str, np.ndarray]]
    lower: Callable[[], Any] | None = None
    held: Callable[[], Mapping[str, Any]] = dict
    parts: Callable[[], Mapping[str, np.ndarray]] = dict
    training: Callable[[], Training] | None = None


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a program learns from image files, with the compiled step that its evidence is of.

    `layout` is how it wants its images. `stage` copies a batch (uint8 images, int32 labels) to
    where the host holds it, `send` puts that on the device and may return before it is there;
    `learn` enqueues one step and returns its loss; `validate` counts the images whose largest logit
    is their label's (none has the label -1). Both stay on the device, whose debts are `owed`.
    `see` gives what of such a batch a step is given, `pixels` and `labels`, which are compared too.
    `reset` goes back to the initial state.
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

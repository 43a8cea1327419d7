"""The result of a workload's `build`: the work that is measured and proven."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # a stdlib-only contender runs where numpy is not installed
    import numpy as np

Precision = Literal["fp32_ieee", "tf32", "bf16", "bf16_autocast"]
"""`bf16`: parameters and activations; `bf16_autocast`: float32 parameters, computed in bf16."""


REFERENCE = "fp64"
"""Precision of the reference: float64 throughout. No case is timed in it."""


class UnsupportedError(Exception):
    """The case or the settings need something that this device lacks: not a failure."""


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """The same initial parameters and inputs for every contender, by canonical name."""

    params: Mapping[str, np.ndarray]
    inputs: Mapping[str, np.ndarray]


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz that we wrote."""
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def list_arrays(path: Path) -> list[str] | None:
    """The names of the arrays of an .npz that may be damaged, once all of it was read and compared
    with its checksums; None = it can't be read, or is not there."""
    import zlib
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(path) as archive:
            whole = archive.testzip() is None
            return [each.removesuffix(".npy") for each in archive.namelist()] if whole else None
    except (OSError, ValueError, EOFError, RuntimeError, BadZipFile, zlib.error):
        return None


ByName = Mapping[str, "np.ndarray"]
"""Host arrays under canonical names, in canonical layout."""
State = Mapping[str, ByName]
"""What steps change, by group: `params`, `statistics`, and the optimiser's, such as `momentum`."""


def _place_nothing(inputs: ByName) -> tuple[()]:
    return ()


def _hold_inputs(inputs: Any) -> Mapping[str, Any]:
    return {"inputs": inputs} if inputs else {}


def _ignore(argument: object) -> None:
    """The default of what a program without state has no use for."""


def _read_nothing(outputs: object) -> ByName:
    return {}


@dataclass(frozen=True, kw_only=True)
class Program:
    """One contender's work, set up and ready.

    `step` is the only function that does the work: the clock times it, and the harness makes the
    evidence from it. It enqueues one step on inputs that `place` put on the device. It returns all
    that the device still has to finish, with the parameters that it changes. It reads the numbers
    that `place` and `reset` were given, in any layout.

    - `reset` goes back to known values: these parameters and running statistics, and an optimiser
      that has seen no step. The harness also passes arrays that the program was not built with, so
      nothing of the first ones may be stored.
    - `read` copies a step's outputs to the host, `state` what steps change.
    - `use_random(False)` disables the random numbers of the same step, if it draws any.
    - `lower` gives the compiled step in the framework's own form, if any (`jax.stages.Lowered`).
    - `held` returns what the manifest is read from: `params` and `inputs` as they are now,
      `output_dtype` of the forward pass, and `state_update` (`in place`, `copied`, `no state`). JAX
      adds its `function` with `arguments`, torch its `module`. On several devices there is also
      `state`, every array that lasts from step to step.
    - `layers` gives each layer's output by name, in forward order. It shows in which layer two
      programs begin to differ.
    - `new_shapes` makes inputs of shapes that no step has had, whose first step is measured.
    - `own_step` is what `step` does in this process, if others of its group follow each step.
    """

    step: Callable[[Any], object]
    place: Callable[[ByName], Any] = _place_nothing
    reset: Callable[[ByName], object] = _ignore
    read: Callable[[Any], ByName] = _read_nothing
    state: Callable[[], State] = dict
    use_random: Callable[[bool], object] = _ignore
    lower: Callable[[Any], Any] | None = None
    held: Callable[[Any], Mapping[str, Any]] = _hold_inputs
    layers: Callable[[Any], ByName] | None = None
    training: Callable[[], Training] | None = None
    new_shapes: Callable[[], Sequence[Any]] | None = None
    own_step: Callable[[Any], object] | None = None


@dataclass(frozen=True, kw_only=True)
class Steps:
    """What the steps of a proof left on the host, from known proof inputs on.

    `before` are the start's parameters and running statistics. `outputs` has one entry per step,
    each waited for. Only the last output and `after_last` are of a second run, as in a block.
    """

    before: ByName
    outputs: Sequence[ByName]
    after_first: State
    after_last: State


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training on a data set, with the same compiled step that the evidence checks.

    `layout` is the layout of its images. `stage` copies a batch's arrays (uint8 images or others,
    int32 labels) into host memory of the program. `send` starts the copy to the device and may
    return before it ends. `learn` enqueues one step and returns its loss; `validate` counts the
    labels at which the largest logit is (-1 = no label). Both results stay on the device;
    `pending` returns the arrays to wait for. `read_batch` returns the `pixels` and `labels` that a
    step gets, which are compared too; `inputs` stand for pixels where there are none. `reset`
    restores the initial state.
    """

    layout: Literal["NHWC", "NCHW"]
    stage: Callable[[ByName], Any]
    send: Callable[[Any], Any]
    learn: Callable[[Any], Any]
    validate: Callable[[Any], Any]
    read_batch: Callable[[Any], Mapping[str, np.ndarray]]
    pending: Callable[[], object]
    reset: Callable[[], object]


Settings = Mapping[str, Any]
Build = Callable[[Any, Arrays, Settings], Program]

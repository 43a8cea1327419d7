"""Builds a contender's program: checkpoint weights in place of seeded ones, injected slowdowns."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.proof.agreement import KNOWN, LARGE, SMALL
from benchcore.program import Arrays, Program, read_arrays
from benchcore.workloads.contract import Spec, import_spec, size_case
from benchcore.workloads.settings import INJECTED_SLOWDOWN

_OTHER_SEED = 1_000_003
_LARGE = 4
"""64 costs digits: EfficientNet-B0's two layouts are then 1.7e-5 apart (CPU), and 1.6e-6 at 4."""


class WeightsUnusableError(Exception):
    """The converted weights are missing, broken, or for another network: no contender's fault."""


def find_case(spec: Spec, order: Mapping[str, Any]) -> Any:
    """The case of the order, with its dataset's batch and side and its own precision, if given."""
    case, dataset = spec.cases[order["case"]], order["dataset"]
    if dataset is not None:
        case = size_case(case, dataset["batch"], dataset["side"])
    other = order.get("precision")
    return case if other is None else dataclasses.replace(case, precision=other)


def put_weights(arrays: Arrays, checkpoint: Mapping[str, Any] | None) -> Arrays:
    """The arrays with every parameter and running statistic from the checkpoint, if there is one.

    Raises WeightsUnusableError unless names, shapes and types are exactly those of the arrays.
    """
    if checkpoint is None:
        return arrays
    try:
        params = read_arrays(checkpoint["weights"])
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise WeightsUnusableError(f"checkpoint {checkpoint['sha256']}: {error}") from error
    wanted, came = (
        {name: (array.shape, array.dtype) for name, array in each.items()}
        for each in (arrays.params, params)
    )
    if came != wanted:
        wrong = sorted(name for name in wanted | came if wanted.get(name) != came.get(name))
        raise WeightsUnusableError(
            f"checkpoint {checkpoint['sha256']} is for another network: {len(wrong)} arrays "
            f"differ, such as {wrong[0]!r}"
        )
    return Arrays(params={name: params[name] for name in wanted}, inputs=arrays.inputs)


def digest(arrays: Arrays) -> str:
    """SHA-256 of names, shapes, types and bytes: checks that contenders got the same inputs."""
    sha = hashlib.sha256()
    for group in (arrays.params, arrays.inputs):
        for name in sorted(group):
            array = group[name]
            sha.update(f"{name}{array.shape}{array.dtype}".encode())
            sha.update(array.tobytes())
    return sha.hexdigest()


def make_other_arrays(spec: Spec, case: Any, seed: int) -> Arrays:
    """Arrays from another seed, without a checkpoint: numbers that the build has not seen. In
    inference one example is larger than usual, so that limits show; in training no ReLU is near its
    kink, so that tolerances can be narrow."""
    arrays = spec.make_arrays(case, seed + _OTHER_SEED)
    if case.use_case == "infer":
        for first in list(arrays.inputs.values())[:1]:
            if first.dtype.kind == "f":  # a token has no size
                first[0] *= _LARGE
    return spec.smooth(case, arrays)


def make_start(spec: Spec, case: Any, seed: int, when: str) -> Arrays | None:
    """The start from which the evidence of this moment is computed; None = the known one."""
    if when == KNOWN:
        return None
    arrays = make_other_arrays(spec, case, seed)
    change = {SMALL: spec.shrink, LARGE: spec.enlarge}.get(when)
    return arrays if change is None else change(case, arrays)


def bind_program(
    order: Mapping[str, Any],
    case: Any,
    arrays: Arrays,
    lead: Callable[[Program], Program] = lambda program: program,
) -> BoundProgram:
    """The workload's program for an order's framework, device and settings, with its inputs.

    `lead` lets the other processes of a group make the calls that this one makes.
    """
    built = build_program(order, case, arrays)
    # Only `lead` knows whether others follow: a side that is alone is watched whole.
    program = lead(dataclasses.replace(built, own_step=None))
    bound = BoundProgram(program, import_spec(order["workload"]), case, arrays)
    inject_slowdown(bound, order["settings"])
    return bound


def build_program(order: Mapping[str, Any], case: Any, arrays: Arrays) -> Program:
    """The workload's program for an order's framework, device and settings."""
    name = f"benchcore.workloads.{order['workload']}.in_{order['framework']}"
    module = importlib.import_module(name)
    given = {key: value for key, value in order["settings"].items() if key != INJECTED_SLOWDOWN}
    return module.build(case, arrays, {**given, "device": order["device"]})


def inject_slowdown(bound: BoundProgram, settings: Mapping[str, Any]) -> None:
    """Let the timed step do more of its own work, by the percentage in the settings.

    Calibration runs use it to see whether our verdicts notice a known slowdown. The proof is of
    single steps.
    """
    percent = int(settings.get(INJECTED_SLOWDOWN, 0))
    if percent:
        bound.step = _repeat_some(bound.step, percent)


def _repeat_some(step: Callable[[], object], percent: int) -> Callable[[], object]:
    """A step that runs twice in `percent` of its calls, evenly spread."""
    due = 0

    def longer_step() -> object:
        nonlocal due
        due += percent
        if due < 100:
            return step()
        due -= 100
        step()
        return step()

    return longer_step

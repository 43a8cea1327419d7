"""Single operations from a table, each launch-bound, in a cache, out of it, and bandwidth-bound.

Plain products, copies and convolutions, depthwise ones too, are workloads of their own: `matmul`,
`copy` and `convolution`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from benchcore.program import Arrays, Precision, State, Steps
from benchcore.workloads.contract import Spec, stack_outputs
from benchcore.workloads.ops.random_numbers import FEWEST_STEPS, NUM_NUMBERS, Shape, measure_draws
from benchcore.workloads.ops.table import OPERATIONS, Operation
from benchcore.workloads.proof_inputs.large_values import enlarge, move_rows, shrink_rows
from benchcore.workloads.rotation import roll
from benchcore.workloads.settings import JAX_EAGER, Options

SETTINGS: Mapping[str, Options] = {"jax": JAX_EAGER}

HOT_BUFFERS = 2
"""The second input reveals a step that returns what it computed before."""
COLD_BYTES: Mapping[str, int] = {"small": 4 << 20, "medium": 64 << 20}
"""What the sets of a size's inputs take together in its cold case. No core's second-level cache
holds 4 MiB; 64 MiB are more than most third-level caches leave to one core."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row of the table at one of its sizes. Steps rotate over `buffers` sets of inputs."""

    use_case: Literal["op"] = "op"
    batch: int
    precision: Precision
    operation: str
    size: Shape
    buffers: int = HOT_BUFFERS


def _list_cases() -> Iterator[tuple[str, Case]]:
    for name, row in OPERATIONS.items():
        for precision in row.tolerances:
            end = "" if precision == "fp32_ieee" else f"_{precision}"
            for size, numbers in row.sizes.items():
                case = Case(
                    batch=numbers[0],
                    precision=precision,
                    operation=name,
                    size=numbers,
                    buffers=1 if row.draws else HOT_BUFFERS,
                )
                begin = f"tiny_op_{name}" if size == "tiny" else f"{name}_{size}"
                yield f"{begin}{end}", case
            if row.takes_size:  # it reads nothing that could be in a cache
                continue
            for size in COLD_BYTES:
                numbers = row.sizes[size]
                cold = Case(
                    batch=numbers[0],
                    precision=precision,
                    operation=name,
                    size=numbers,
                    buffers=_count_cold(row, size, precision),
                )
                yield f"{name}_{size}_cold{end}", cold


def _count_cold(row: Operation, size: str, precision: Precision) -> int:
    """The number of sets of inputs that take COLD_BYTES, at most as many as rotation can make."""
    numbers = row.sizes[size]
    reals = [prod(shape) for shape in row.floats(numbers).values()]
    whole = sum(prod(shape) for shape, _ in row.indices(numbers).values())
    bytes_of_set = (2 if precision == "bf16" else 4) * sum(reals) + 4 * whole
    return min(-(-COLD_BYTES[size] // bytes_of_set), reals[0])


_TABLED = dict(_list_cases())
CASES: dict[str, Case] = {"tiny_op": _TABLED["tiny_op_elementwise_chain"], **_TABLED}


def make_arrays(case: Case, seed: int) -> Arrays:
    """Inputs: real numbers, standard normal, float32; indices, uniform, int32. What draws numbers
    has none but its `seed`, which no step sees: a parameter of the proof inputs."""
    rng = np.random.Generator(np.random.PCG64(seed))
    row = OPERATIONS[case.operation]
    if row.draws:
        return Arrays(params={"seed": rng.integers(1 << 31, size=1, dtype=np.int32)}, inputs={})
    inputs: dict[str, np.ndarray] = {
        name: rng.standard_normal(shape, dtype=np.float32)
        for name, shape in row.floats(case.size).items()
    }
    for name, (shape, below) in row.indices(case.size).items():
        inputs[name] = rng.integers(0, below, shape, dtype=np.int32)
    return Arrays(params={}, inputs=inputs)


def flops(case: Case) -> int:
    """Operations of the step's matrix products; one multiply-add counts as two."""
    return OPERATIONS[case.operation].flops(case.size)


def least_bytes(case: Case) -> int:
    """Bytes a step must move to or from memory: its inputs in, its result out."""
    row = OPERATIONS[case.operation]
    reals = [*row.floats(case.size).values(), row.output(case.size)]
    real_bytes = 2 if case.precision == "bf16" else 4
    indices = sum(prod(shape) for shape, _ in row.indices(case.size).values())
    return real_bytes * sum(map(prod, reals)) + 4 * indices


def tolerances(case: Case) -> dict[str, float]:
    """Largest allowed max|a-b| / max(|a|, |b|) between two contenders."""
    row = OPERATIONS[case.operation]
    return row.draws.tolerances if row.draws else {"result": row.tolerances[case.precision]}


def num_proof_steps(case: Case) -> int:
    """Every set of inputs once, or as many as draw enough numbers."""
    if OPERATIONS[case.operation].draws:
        return max(FEWEST_STEPS, -(-NUM_NUMBERS // prod(case.size)))
    return case.buffers


def summarise(case: Case, steps: Steps) -> Mapping[str, np.ndarray]:
    """The results of all steps, or what the numbers that all of them drew are like."""
    row = OPERATIONS[case.operation]
    if row.draws is None:
        return stack_outputs(case, steps)
    return measure_draws(np.concatenate([each["numbers"] for each in steps.outputs]), row.draws)


def advance(case: Case, before: State, after: State, fresh: State) -> State:
    """A step must lead the state of the random numbers where it leads it after a reset."""
    return {"params": fresh["params"]}


def reference(case: Case, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """The results of all sets of inputs in turn, in float64, or the exact distribution."""
    row = OPERATIONS[case.operation]
    if row.draws:
        return row.draws.exact
    sets = roll(arrays.inputs, case.buffers)
    return {"result": np.stack([_compute(case, _widen(each)) for each in sets])}


def in_numpy(case: Case, arrays: Arrays) -> Callable[[], object]:
    """The step in NumPy, in float32 on the host: what its users compare both frameworks with."""
    row = OPERATIONS[case.operation]
    if row.draws:
        draw, rng = row.draws.draw, np.random.default_rng(arrays.params["seed"])
        return lambda: draw(rng, case.size)
    return lambda: _compute(case, arrays.inputs)


def _compute(case: Case, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    row = OPERATIONS[case.operation]
    assert row.reference is not None, "what draws numbers has no result to compute"
    return row.reference(**inputs, **({"size": case.size} if row.takes_size else {}))


def _shrink(case: Case, arrays: Arrays) -> Arrays:
    return shrink_rows(case, arrays) if arrays.inputs else arrays


def _enlarge(case: Case, arrays: Arrays) -> Arrays:
    """A norm's rows far from zero, as it has no activation."""
    return (move_rows if case.operation == "layer_norm" else enlarge)(case, arrays)


def _widen(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name: array if array.dtype == np.int32 else array.astype(np.float64)
        for name, array in inputs.items()
    }


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=tolerances,
    enlarge=_enlarge,
    shrink=_shrink,
    num_buffers=lambda case: case.buffers,
    num_proof_steps=num_proof_steps,
    summarise=summarise,
    advance=advance,
    reference=reference,
    in_numpy=in_numpy,
    settings=SETTINGS,
    rounds_exponentials=lambda case: case.operation == "softmax",
)

"""Single operations from a table, each launch-bound, in a cache, out of it, and bandwidth-bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from benchcore.program import Arrays, Precision
from benchcore.workloads.contract import Spec
from benchcore.workloads.ops.table import OPERATIONS, Shape
from benchcore.workloads.rotation import roll
from benchcore.workloads.starts.large_values import shrink_rows

HOT_BUFFERS = 2
"""A step that returns what it computed before is found out by its second input."""
COLD_BUFFERS = 64
"""Sets of a `medium` size's inputs: 64 MiB or more together, which no CPU's second-level cache
holds."""


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
                case = Case(batch=numbers[0], precision=precision, operation=name, size=numbers)
                begin = f"tiny_op_{name}" if size == "tiny" else f"{name}_{size}"
                yield f"{begin}{end}", case
            cold = Case(
                batch=row.sizes["medium"][0],
                precision=precision,
                operation=name,
                size=row.sizes["medium"],
                buffers=COLD_BUFFERS,
            )
            yield f"{name}_medium_cold{end}", cold


_TABLED = dict(_list_cases())
CASES: dict[str, Case] = {"tiny_op": _TABLED["tiny_op_elementwise_chain"], **_TABLED}


def make_arrays(case: Case, seed: int) -> Arrays:
    """Inputs: real numbers, standard normal, float32; indices, uniform, int32."""
    rng = np.random.Generator(np.random.PCG64(seed))
    row = OPERATIONS[case.operation]
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
    return {"result": OPERATIONS[case.operation].tolerances[case.precision]}


def reference(case: Case, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """The results of all sets of inputs in turn, in float64."""
    compute = OPERATIONS[case.operation].reference
    return {
        "result": np.stack(
            [compute(**_widen(each)) for each in roll(arrays.inputs, case.buffers)],
        )
    }


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
    shrink=shrink_rows,
    num_buffers=lambda case: case.buffers,
    reference=reference,
)

"""Fused kernels written by hand, against what the compiler makes of the same formula.

The setting `kernel` chooses: `compiler`, or the framework's own language for kernels (Triton in
PyTorch, Pallas in JAX). Such a kernel runs on a GPU. On a CPU there are only interpreters, which
prove that it is right and have no speed: a contender is `unsupported` there. Not run on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from benchcore.program import Arrays
from benchcore.workloads.contract import Spec
from benchcore.workloads.rotation import roll
from benchcore.workloads.settings import (
    JAX_KERNEL,
    JAX_OPTIONS,
    TORCH_KERNEL,
    TORCH_OPTIONS,
    Options,
)
from benchcore.workloads.starts.large_values import shrink_rows

SETTINGS: Mapping[str, Options] = {
    "jax": {"xla": JAX_OPTIONS["xla"], **JAX_KERNEL},
    "torch": {**TORCH_OPTIONS, **TORCH_KERNEL},
}
EPSILON = 1e-6
NUM_BUFFERS = 2
Formula = Literal["softmax", "rms_norm"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A formula of every row of a matrix (batch, width). Both are powers of two, as the languages
    for kernels want their blocks."""

    use_case: Literal["op"] = "op"
    batch: int
    precision: Literal["fp32_ieee"] = "fp32_ieee"
    formula: Formula
    width: int


def _make_cases() -> dict[str, Case]:
    cases = {"tiny_op": Case(batch=8, width=64, formula="softmax")}
    for formula in get_args(Formula):
        cases[f"tiny_op_{formula}"] = Case(batch=8, width=64, formula=formula)
        for batch in (128, 8192):
            cases[f"{formula}_b{batch}"] = Case(batch=batch, width=4096, formula=formula)
    return cases


CASES: dict[str, Case] = _make_cases()


def make_arrays(case: Case, seed: int) -> Arrays:
    """Inputs, float32: `rows` (batch, width), standard normal, and for `rms_norm` `scale`
    (width,)."""
    rng = np.random.Generator(np.random.PCG64(seed))
    inputs = {"rows": rng.standard_normal((case.batch, case.width), dtype=np.float32)}
    if case.formula == "rms_norm":
        inputs["scale"] = rng.uniform(0.5, 1.5, case.width).astype(np.float32)
    return Arrays(params={}, inputs=inputs)


def least_bytes(case: Case) -> int:
    """Bytes a step must move: the rows in and out, once each, and the scale in."""
    scale = case.width if case.formula == "rms_norm" else 0
    return 4 * (2 * case.batch * case.width + scale)


def reference(case: Case, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """Of both sets of inputs in turn, in float64."""
    return {"result": np.stack([_compute(each) for each in roll(arrays.inputs, NUM_BUFFERS)])}


def _compute(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    rows = inputs["rows"].astype(np.float64)
    if "scale" in inputs:
        mean = np.square(rows).mean(axis=1, keepdims=True)
        return rows / np.sqrt(mean + EPSILON) * inputs["scale"].astype(np.float64)
    raised = np.exp(rows - rows.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=lambda case: 0,
    least_bytes=least_bytes,
    tolerances=lambda case: {"result": 1e-5},
    shrink=shrink_rows,
    num_buffers=lambda case: NUM_BUFFERS,
    reference=reference,
    settings=SETTINGS,
)

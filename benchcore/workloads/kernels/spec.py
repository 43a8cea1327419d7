"""Fused kernels written by hand, against what the compiler makes of the same formula.

The setting `kernel` chooses: `compiler`, or the framework's own language for kernels (Triton in
PyTorch, Pallas in JAX). Such a kernel runs on a GPU. On a CPU there are only interpreters, which
prove that it is right and have no speed: a contender is `unsupported` there. Not run on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from benchcore.program import Arrays
from benchcore.workloads.contract import Spec
from benchcore.workloads.proof_inputs.large_values import shrink_rows
from benchcore.workloads.rotation import roll
from benchcore.workloads.settings import (
    JAX_KERNEL,
    JAX_OPTIONS,
    TORCH_KERNEL,
    TORCH_OPTIONS,
    Options,
)

SETTINGS: Mapping[str, Options] = {
    "jax": {"xla": JAX_OPTIONS["xla"], **JAX_KERNEL},
    "torch": {**TORCH_OPTIONS, **TORCH_KERNEL},
}
EPSILON = 1e-6
NUM_BUFFERS = 2
Formula = Literal["softmax", "rms_norm", "rms_norm_linear"]
"""The last one multiplies the normalised rows with a matrix, within the same kernel."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A formula of every row of a matrix (batch, width). Both are powers of two, as the languages
    for kernels want their blocks."""

    use_case: Literal["op"] = "op"
    batch: int
    precision: Literal["fp32_ieee"] = "fp32_ieee"
    formula: Formula
    width: int
    outputs: int
    """Columns of the result."""


def _make_cases() -> dict[str, Case]:
    cases = dict[str, Case]()
    for formula in get_args(Formula):
        multiplies = formula == "rms_norm_linear"
        tiny = Case(batch=16, width=64, formula=formula, outputs=32 if multiplies else 64)
        cases.setdefault("tiny_op", tiny)
        cases[f"tiny_op_{formula}"] = tiny
        for batch in (128, 8192):
            base = replace(tiny, batch=batch, width=4096, outputs=1024 if multiplies else 4096)
            cases[f"{formula}_b{batch}"] = base
    return cases


CASES: dict[str, Case] = _make_cases()


def make_arrays(case: Case, seed: int) -> Arrays:
    """Inputs, float32: `rows` (batch, width), standard normal, and for `rms_norm` `scale`
    (width,); for `rms_norm_linear` also `weight` (width, outputs), He-normal."""
    rng = np.random.Generator(np.random.PCG64(seed))
    inputs = {"rows": rng.standard_normal((case.batch, case.width), dtype=np.float32)}
    if case.formula != "softmax":
        inputs["scale"] = rng.uniform(0.5, 1.5, case.width).astype(np.float32)
    if case.formula == "rms_norm_linear":
        weight = rng.standard_normal((case.width, case.outputs), dtype=np.float32)
        inputs["weight"] = weight * np.float32(np.sqrt(2.0 / case.width))
    return Arrays(params={}, inputs=inputs)


def flops(case: Case) -> int:
    """Operations of the product with the matrix, where there is one."""
    multiplies = case.formula == "rms_norm_linear"
    return 2 * case.batch * case.width * case.outputs if multiplies else 0


def least_bytes(case: Case) -> int:
    """Bytes a step must move: the rows in and the result out, once each, and the rest in."""
    scale = 0 if case.formula == "softmax" else case.width
    weight = case.width * case.outputs if case.formula == "rms_norm_linear" else 0
    return 4 * (case.batch * (case.width + case.outputs) + scale + weight)


def reference(case: Case, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """The evidence of both sets of inputs in turn, in float64."""
    return {"result": np.stack([_compute(each) for each in roll(arrays.inputs, NUM_BUFFERS)])}


def _compute(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    rows = inputs["rows"].astype(np.float64)
    if "scale" in inputs:
        mean = np.square(rows).mean(axis=1, keepdims=True)
        normal = rows / np.sqrt(mean + EPSILON) * inputs["scale"].astype(np.float64)
        return normal @ inputs["weight"].astype(np.float64) if "weight" in inputs else normal
    raised = np.exp(rows - rows.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


SPEC = Spec(
    cases=CASES,
    make_arrays=make_arrays,
    flops=flops,
    least_bytes=least_bytes,
    tolerances=lambda case: {"result": 1e-5},
    shrink=shrink_rows,
    num_buffers=lambda case: NUM_BUFFERS,
    reference=reference,
    settings=SETTINGS,
)

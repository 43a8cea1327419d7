"""The kernels in JAX: what XLA fuses, or Pallas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchcore.program import Arrays, Program, Settings, UnsupportedError
from benchcore.workloads.kernels.spec import EPSILON, SETTINGS, Case
from benchcore.workloads.settings import JAX_COMPILE, read_settings

_BLOCK_ROWS = 4
_TILE = 16
"""Rows of a product's tile, and twice as many columns and places of a row at a time."""


def _softmax(rows: jax.Array) -> jax.Array:
    raised = jnp.exp(rows - rows.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _rms_norm(rows: jax.Array, scale: jax.Array) -> jax.Array:
    mean = jnp.square(rows).mean(axis=1, keepdims=True)
    return rows * lax.rsqrt(mean + EPSILON) * scale


def _rms_norm_linear(rows: jax.Array, scale: jax.Array, weight: jax.Array) -> jax.Array:
    return _rms_norm(rows, scale) @ weight


FORMULAS: Mapping[str, Callable[..., jax.Array]] = {
    "softmax": _softmax,
    "rms_norm": _rms_norm,
    "rms_norm_linear": _rms_norm_linear,
}


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the rows on the device; a step computes the formula of the next set."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    formula = FORMULAS[case.formula]
    if wanted.kernel == "pallas":
        if wanted.platform == "cpu":
            raise UnsupportedError("a Pallas kernel needs a GPU; on a CPU it is only interpreted")
        formula = write_kernel(case, interpret=False)
    compiled = jax.jit(formula)
    device = jax.devices(wanted.platform)[wanted.ordinal]
    return Program(
        place=lambda inputs: tuple(jax.device_put(each, device) for each in inputs.values()),
        step=lambda inputs: compiled(*inputs),
        read=lambda result: {"result": np.asarray(result)},
        lower=lambda inputs: compiled.lower(*inputs),
    )


def write_kernel(case: Case, *, interpret: bool) -> Callable[..., jax.Array]:
    """The formula as a Pallas kernel: a few rows per program, each read and written once."""
    from jax.experimental import pallas as pl  # only where a kernel is asked for

    if case.formula == "rms_norm_linear":
        return _write_product(pl, case, interpret=interpret)
    formula = FORMULAS[case.formula]

    def kernel(rows: Any, *others: Any) -> None:
        *given, result = others
        result[...] = formula(rows[...], *(each[...] for each in given))

    block = pl.BlockSpec((_BLOCK_ROWS, case.width), lambda index: (index, 0))
    whole = pl.BlockSpec((case.width,), lambda index: (0,))
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((case.batch, case.width), jnp.float32),
        grid=(case.batch // _BLOCK_ROWS,),
        in_specs=[block, whole] if case.formula == "rms_norm" else [block],
        out_specs=block,
        interpret=interpret,
    )


def _write_product(pl: Any, case: Case, *, interpret: bool) -> Callable[..., jax.Array]:
    """A tile of the result per program: both the product and the rows' squares are summed over
    parts of the rows, which fit in registers."""
    part, columns = 2 * _TILE, 2 * _TILE

    def kernel(rows: Any, scale: Any, weight: Any, result: Any) -> None:
        def add(index: Any, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            total, squares = sums
            at = pl.ds(index * part, part)
            given = rows[:, at]
            scaled = given * scale[at]
            total += jnp.dot(scaled, weight[at, :], precision=lax.Precision.HIGHEST)
            return total, squares + jnp.square(given).sum(axis=1, keepdims=True)

        zeros = (jnp.zeros((_TILE, columns), jnp.float32), jnp.zeros((_TILE, 1), jnp.float32))
        total, squares = lax.fori_loop(0, case.width // part, add, zeros)
        result[...] = total * lax.rsqrt(squares / case.width + EPSILON)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((case.batch, case.outputs), jnp.float32),
        grid=(case.batch // _TILE, case.outputs // columns),
        in_specs=[
            pl.BlockSpec((_TILE, case.width), lambda row, column: (row, 0)),
            pl.BlockSpec((case.width,), lambda row, column: (0,)),
            pl.BlockSpec((case.width, columns), lambda row, column: (0, column)),
        ],
        out_specs=pl.BlockSpec((_TILE, columns), lambda row, column: (row, column)),
        interpret=interpret,
    )

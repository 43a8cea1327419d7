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


def _softmax(rows: jax.Array) -> jax.Array:
    raised = jnp.exp(rows - rows.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _rms_norm(rows: jax.Array, scale: jax.Array) -> jax.Array:
    mean = jnp.square(rows).mean(axis=1, keepdims=True)
    return rows * lax.rsqrt(mean + EPSILON) * scale


FORMULAS: Mapping[str, Callable[..., jax.Array]] = {"softmax": _softmax, "rms_norm": _rms_norm}


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

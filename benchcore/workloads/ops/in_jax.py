"""The table's operations in JAX: one `jax.jit` each, or operation by operation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchcore.program import Arrays, ByName, Program, Settings, State
from benchcore.workloads.ops.spec import SETTINGS, Case
from benchcore.workloads.ops.table import LAYER_NORM_EPSILON, OPERATIONS, Shape, split_complex
from benchcore.workloads.settings import JAX_COMPILE, read_settings


def _layer_norm(x: jax.Array, scale: jax.Array, offset: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    mean = wide.mean(axis=1, keepdims=True)
    variance = jnp.square(wide - mean).mean(axis=1, keepdims=True)
    normal = (wide - mean) * lax.rsqrt(variance + LAYER_NORM_EPSILON)
    return (normal * scale + offset).astype(x.dtype)


def _linspace_chain(low: jax.Array, high: jax.Array, size: Shape) -> jax.Array:
    return jnp.square(jnp.sin(jnp.linspace(low, high, size[1]))).sum()


def _transposed_convolution(images: jax.Array, weight: jax.Array) -> jax.Array:
    return lax.conv_transpose(
        images, weight, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


CALLS: Mapping[str, Callable[..., jax.Array]] = {
    "elementwise_chain": lambda x: jnp.square(jnp.sin(x)).sum(axis=1),
    "softmax": lambda x: jax.nn.softmax(x, axis=1),
    "layer_norm": _layer_norm,
    "sum_rows": lambda x: x.sum(axis=1),
    "sum_columns": lambda x: x.sum(axis=1),
    "cumulative_sum": lambda x: jnp.cumsum(x, axis=1),
    "sort": lambda x: jnp.sort(x, axis=1),
    "fft": jnp.fft.rfft,
    "gather": lambda table, index: table[index],
    "scatter_add": lambda updates, index: jnp.zeros_like(updates).at[index].add(updates),
    "attention": jax.nn.dot_product_attention,
    "batched_matmul": lambda left, right: left @ right,
    "transposed_convolution": _transposed_convolution,
    "linspace_chain": _linspace_chain,
    "random_uniform": lambda key, size: jax.random.uniform(key, size),
    "random_normal": lambda key, size: jax.random.normal(key, size),
}
_TO_OWN: Mapping[str, Mapping[str, Callable[[np.ndarray], np.ndarray]]] = {
    "attention": dict.fromkeys(
        ("query", "key", "value"), lambda array: array.transpose(0, 2, 1, 3)
    ),
    "transposed_convolution": {
        "images": lambda array: array.transpose(0, 2, 3, 1),
        "weight": lambda array: array.transpose(2, 3, 0, 1)[::-1, ::-1],  # JAX mirrors none
    },
}
"""JAX's own layouts: tokens before heads, channels last."""
_FROM_OWN = {"attention": (0, 2, 1, 3), "transposed_convolution": (0, 3, 1, 2)}


def build(case: Case, arrays: Arrays, settings: Settings) -> Program:
    """Place the arrays on the device; a step computes the operation of the next set."""
    wanted = read_settings(settings, JAX_COMPILE, SETTINGS["jax"])
    device = jax.devices(wanted.platform)[wanted.ordinal]
    call, row = CALLS[case.operation], OPERATIONS[case.operation]
    if row.takes_size:
        call = functools.partial(call, size=case.size)
    if row.draws:
        return _draw(call, arrays, device, jits=wanted.compile == "jit")
    dtype = jnp.bfloat16 if case.precision == "bf16" else jnp.float32
    compiled = jax.jit(call) if wanted.compile == "jit" else None
    compute = compiled or call
    to_own, axes = _TO_OWN.get(case.operation, {}), _FROM_OWN.get(case.operation)

    def place(name: str, array: np.ndarray) -> jax.Array:
        own = np.ascontiguousarray(to_own.get(name, np.asarray)(array))
        return jax.device_put(own if own.dtype == np.int32 else own.astype(dtype), device)

    def read(result: jax.Array) -> ByName:
        host = np.asarray(result)
        if np.iscomplexobj(host):
            return {"result": split_complex(host)}
        host = host.astype(np.float32)
        return {"result": host if axes is None else host.transpose(axes)}

    def place_all(inputs: ByName) -> tuple[jax.Array, ...]:
        if "ends" in inputs:  # of an interval: two numbers
            return tuple(place("ends", each) for each in inputs["ends"][:2])
        return tuple(place(name, array) for name, array in inputs.items())

    return Program(
        place=place_all,
        step=lambda inputs: compute(*inputs),
        read=read,
        lower=compiled and (lambda inputs: compiled.lower(*inputs)),
    )


def _draw(
    call: Callable[..., jax.Array], arrays: Arrays, device: jax.Device, *, jits: bool
) -> Program:
    """Each step splits the key that the step before it left: how JAX's users draw numbers."""

    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        following, own = jax.random.split(jax.random.wrap_key_data(key))
        return jax.random.key_data(following), call(own)

    compiled = jax.jit(draw) if jits else None
    compute = compiled or draw
    seed, key = arrays.params["seed"], jnp.zeros(())

    def reset(params: ByName) -> None:
        nonlocal seed, key
        seed = params["seed"]
        at = params.get("key")
        first = jax.random.key_data(jax.random.key(int(seed[0])))
        key = jax.device_put(first if at is None else at, device)

    def step(inputs: object) -> tuple[jax.Array, jax.Array]:
        nonlocal key
        key, numbers = compute(key)
        return key, numbers

    def state() -> State:
        return {"params": {"seed": seed, "key": np.asarray(key)}}

    reset(arrays.params)
    return Program(
        step=step,
        reset=reset,
        state=state,
        read=lambda outputs: {"numbers": np.asarray(outputs[1])},
        lower=compiled and (lambda inputs: compiled.lower(key)),
    )

"""What JAX's functions are passed and return besides arrays of numbers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

_EXCESS = """
import json, jax
from jax import numpy as jnp
from benchcore.cell.proof.watching.jax_arguments import list_excess, list_repeated

one, few = jnp.ones(3), [jnp.ones(number + 1) for number in range(30)]
take = jax.jit(lambda given, more=None: sum(each.sum() for each in given))
fixed = jax.jit(lambda given, numbers: given + 1, static_argnums=1)
many = jax.jit(lambda given: [given * 2] * 30)
steps = [
    lambda: take(few), lambda: take([one] * 30), lambda: take(few, ((),) * 500),
    lambda: take(few, [0.5] * 30), lambda: fixed(one, (1,) * 500),
]
found = [list_excess(jax, step) for step in steps]

def update(given):
    moved = [each * 2 for each in given]
    return moved, moved  # as an optimiser's updates and its state

@jax.jit
def learn(given):
    updates, state = jax.jit(update)(given)
    return [each - one for each, one in zip(given, updates)], state

passed = jax.jit(lambda given: [jax.jit(lambda each: each)(given)] * 30)
inner = jax.jit(lambda given: many(given))
returning = (
    steps[0], lambda: learn(few), lambda: many(one), lambda: inner(one), lambda: passed(one)
)
repeated = [list(list_repeated(jax.make_jaxpr(step)())) for step in returning]
print(json.dumps([found, repeated]))
"""


@pytest.mark.provisions
def test_what_a_step_of_jax_passes_besides_arrays_is_named(
    run_in_framework: Callable[..., str],
) -> None:
    found, repeated = json.loads(run_in_framework("jax", _EXCESS))
    assert found == [
        [],
        ["arguments that are passed twice"],
        ["505 nodes of arguments without an array"],
        ["30 arguments that are no arrays of numbers"],
        ["500 arguments that are no arrays of numbers"],
    ]
    assert repeated == [[], [], [29], [29], [29]]

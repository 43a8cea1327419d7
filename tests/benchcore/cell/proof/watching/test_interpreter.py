"""How much Python runs in a step beside its operators, and what JAX's functions are passed."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchcore.cell.proof.watching.interpreter import count_events
from benchcore.cell.proof.watching.torch_watch import _has_equal_groups


def test_lines_and_calls_of_c_are_counted() -> None:
    def step() -> None:
        for _ in range(100):
            len(())

    assert 300 <= count_events(step) <= 310


_INTERPRETED = """
import json, torch
from torch import nn
from benchcore.cell.proof.watching.interpreter import describe_interpreted

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
nested, images = model, torch.ones(2, 4)
for _ in range(40):
    nested = nn.Sequential(nested)

def look_often():
    value = images
    for _ in range(200):
        value = value.view(value.shape)
    return model(value)

params = dict(model.named_parameters())
each = torch.func.vmap(lambda image: torch.func.functional_call(model, params, image))
steps = [lambda: model(images), lambda: nested(images), look_often, lambda: each(images)]
print(json.dumps([describe_interpreted(torch, step) for step in steps]))
"""


@pytest.mark.provisions
def test_python_beside_a_step_of_torch_is_named(run_in_framework: Callable[..., str]) -> None:
    plain, nested, viewed, batched = json.loads(run_in_framework("torch", _INTERPRETED))
    assert plain == batched == "none"
    assert nested.endswith("lines and calls for 3 operators")
    assert viewed.endswith("lines and calls for 3 operators")


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
repeated = [list(list_repeated(jax.make_jaxpr(step)())) for step in (steps[0], lambda: many(one))]
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
    assert repeated == [[], [29]]


def test_groups_of_parameters_with_equal_options_are_one_in_pieces() -> None:
    def make(*decays: float) -> Any:
        groups = [{"params": [number], "decay": each} for number, each in enumerate(decays)]
        return SimpleNamespace(param_groups=groups)

    assert not _has_equal_groups(make(0.1, 0.0))
    assert _has_equal_groups(make(0.1, 0.0, 0.1))

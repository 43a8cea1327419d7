"""A variance that is the difference of two means is found, however it is written."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from benchcore.cell.proof.steps.given import Readings

_COMMON = """
import json, sys

def one_pass(x):
    return mean(x * x) - mean(x) ** 2

def as_a_sum(x):
    centre = mean(x)
    return -(centre * centre) + total(square(x)) / 9

def at_least_zero(x):
    return clip(one_pass(x))

def two_passes(x):
    return mean(square(x - mean(x)))

def without_a_mean(x):
    return x * (mean(square(x)) + 1e-5)

ways = [one_pass, as_a_sum, at_least_zero, two_passes, without_a_mean]
"""
_IN_JAX = """
import jax
from jax import numpy
from benchcore.cell.proof.watching.jax_watch import inspect_step
mean = lambda x: x.mean(axis=-1, keepdims=True)
total = lambda x: x.sum(axis=-1, keepdims=True)
square, clip = numpy.square, lambda x: numpy.maximum(x, 0.0)
x = numpy.ones((5, 9))
within = lambda x: jax.lax.scan(lambda total, row: (total + one_pass(row), 0.0), numpy.zeros(1), x)
ways += [lambda x: x.var(axis=-1), lambda x: numpy.linalg.norm(x), within]
ways.append(jax.grad(lambda x: two_passes(x).sum()))
print(json.dumps([list(inspect_step(jax, lambda: jax.jit(each)(x)).one_pass) for each in ways]))
"""
_IN_TORCH = """
import torch
from benchcore.cell.proof.watching.torch_watch import inspect_step
mean = lambda x: x.mean(-1, keepdim=True)
total = lambda x: x.sum(-1, keepdim=True)
square, clip = torch.square, lambda x: x.clamp_(min=0.0)
x = torch.ones(5, 9)
ways += [lambda x: x.var(-1), lambda x: torch.nn.functional.layer_norm(x, (9,)), torch.norm]
print(json.dumps([list(inspect_step(torch, lambda: each(x)).one_pass) for each in ways]))
"""


@pytest.mark.provisions
def test_a_variance_in_one_pass_is_found_in_jax(run_in_framework: Callable[..., str]) -> None:
    found = json.loads(run_in_framework("jax", _COMMON + _IN_JAX).splitlines()[-1])
    assert found == [[5], [5], [5], [], [], [], [], [1], []]


@pytest.mark.provisions
def test_a_variance_in_one_pass_is_found_in_torch(run_in_framework: Callable[..., str]) -> None:
    found = json.loads(run_in_framework("torch", _COMMON + _IN_TORCH).splitlines()[-1])
    assert found == [[5], [5], [5], [], [], [], [], []]


def test_a_variance_in_one_pass_is_named_by_its_size() -> None:
    assert Readings(arrays=[], drawn=0).list_unfair(1) == {}
    seen = Readings(arrays=[], drawn=0, one_pass=[64, 8, 64])
    assert seen.list_unfair(1) == {"variances": "in one pass: 8 64 numbers"}

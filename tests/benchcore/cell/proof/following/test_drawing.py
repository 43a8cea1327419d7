"""Steps that draw random numbers are proven with them: with bits that every side is given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchcore.cell.inspection import Inspection
from benchcore.cell.proof.agreement import compare_all
from benchcore.cell.proof.following.drawing import (
    DROPPED,
    Followed,
    make_bits,
    make_uniform,
    repeats,
)
from benchcore.program import Arrays

ROOT = Path(__file__).parents[5]
_JAX = """
import json, jax, sys
import numpy as np
from benchcore.cell.proof.following.jax_drawing import draw_given, list_branches, list_draws

key, ones = jax.random.key(0), jax.numpy.ones(100)
fast = jax.random.key(0, impl="unsafe_rbg")
lax, drawn = jax.lax, lambda key: jax.random.uniform(key, (100,))

def describe(function, *given):
    traced = jax.make_jaxpr(jax.jit(function))(*given)
    return [[each.generator, each.numbers] for each in list_draws(traced)]

def scan(key):
    return lax.scan(lambda key, _: (jax.random.split(key)[0], drawn(key)), key, length=3)[1]

def pass_unused(key):
    return jax.jit(lambda ignored, value: value + 1)(drawn(key), ones)

found = {"draws": {
    "usual": describe(drawn, key),
    "normal": describe(lambda key: jax.random.normal(key, (100,)), key),
    "fast": describe(drawn, fast),
    "bytes": describe(lambda key: jax.random.bits(key, (100,), "uint8"), key),
    "unused": describe(lambda key: (drawn(key), ones)[1], key),
    "passed on unused": describe(pass_unused, key),
    "in a loop": describe(scan, key),
    "without a key": describe(
        lambda state: lax.rng_bit_generator(state, (100,)), jax.numpy.zeros(4, "uint32")
    ),
}}
even = jax.numpy.int32(2)
functions = {
    "cond": lambda n: lax.cond(n % 2 == 0, lambda: ones * 2, lambda: ones),
    "small": lambda n: lax.cond(n % 2 == 0, lambda: 2.0, lambda: 1.0),
    "while": lambda n: lax.fori_loop(0, n, lambda _, x: x + 1, ones),
    "scan": lambda n: lax.fori_loop(0, 3, lambda _, x: x + 1, ones),
    "platform": lambda n: lax.platform_dependent(ones, cpu=lambda x: x + 1, default=lambda x: x),
    "where": lambda n: jax.numpy.where(n % 2 == 0, ones * 2, ones),
}
found["branches"] = {
    name: list(list_branches(jax.make_jaxpr(jax.jit(each))(even)))
    for name, each in functions.items()
}

def make_step(same_key=False, unused=False):
    state = [jax.numpy.arange(64.0), jax.numpy.int32(0)]
    @jax.jit
    def train(value, number):
        own = jax.random.fold_in(key, 0 if same_key else number)
        kept = jax.random.bernoulli(own, 0.5, value.shape)
        kept = kept * 0.0 + 1.0 if unused else kept
        return [value - kept, number + 1], (value * kept).sum()
    def step():
        state[:], loss = train(*state)
        return list(state), loss
    return step

for name, chosen in [
    ("fair", {}), ("same key", {"same_key": True}), ("unused", {"unused": True})
]:
    step = make_step(**chosen)
    first = step()
    got = draw_given(jax, step, first, lambda left: {"loss": np.asarray(left[1])})
    losses = [float(each["loss"]) for each in got.outputs]
    found[name] = [first[0][0].tolist(), losses, len(set(got.drawn))]
print(json.dumps(found))
"""
_TORCH = """
import json, torch
from benchcore.cell.proof.following.torch_drawing import UnknownDrawError, draw_given
from benchcore.cell.proof.watching.torch_watch import inspect_step

own = torch.Generator().manual_seed(1)

def draw(value):
    return torch.empty_like(value).bernoulli_(0.5)

def make_step(draw):
    value = torch.arange(64.0)
    def step():
        kept = draw(value)
        loss = (value * kept).sum()
        value.sub_(kept)
        return loss, value
    return step

def seed_again(value):
    torch.manual_seed(3)
    return draw(value)

found = {}
for name, each in {
    "fair": draw,
    "uniform": lambda value: (torch.rand_like(value) < 0.5).float(),
    "in one operator": lambda value: torch.native_dropout(torch.ones(64), 0.5, True)[0] * 0.5,
    "same numbers": seed_again,
    "unused": lambda value: draw(value) * 0.0 + 1.0,
}.items():
    step = make_step(each)
    first = step()[1].tolist()
    got = draw_given(torch, step, lambda left: {"loss": left[0].numpy()})
    found[name] = [first, [float(of["loss"]) for of in got.outputs], len(set(got.drawn))]
try:
    draw_given(torch, make_step(lambda value: torch.randint(2, (64,))), lambda left: {})
except UnknownDrawError as error:
    found["unknown"] = str(error)
steps = [lambda: draw(torch.ones(64)), lambda: torch.ones(64).bernoulli_(0.5, generator=own)]
found["generators"] = [sorted(inspect_step(torch, each).generators) for each in steps]
print(json.dumps(found))
"""


def _compute(value: list[float]) -> list[float]:
    """The losses of two steps from there that drop what the given bits say."""
    now, losses = np.array(value), []
    for step in range(2):
        kept = make_uniform(step, 1, 64) < 0.5
        losses.append(float((now * kept).sum()))
        now = now - kept
    return losses


@pytest.mark.provisions
def test_a_step_of_jax_is_followed_with_given_numbers(
    run_in_framework: Callable[..., str],
) -> None:
    found = json.loads(run_in_framework("jax", _JAX).splitlines()[-1])
    assert found["draws"] == {
        "usual": [["usual", 100]],
        "normal": [["usual", 100]],
        "fast": [["key<urbg>", 100]],
        "bytes": [["usual", 25]],
        "unused": [],
        "passed on unused": [],
        "in a loop": [["usual", 300]],
        "without a key": [["rng_bit_generator", 100]],
    }
    branches = {name: bool(each) for name, each in found["branches"].items()}
    assert [name for name, each in branches.items() if each] == ["cond", "while"]
    value, losses, num_draws = found["fair"]
    assert (losses, num_draws) == (pytest.approx(_compute(value)), 2)
    value, losses, num_draws = found["same key"]
    assert (losses, num_draws) == (pytest.approx(_compute(value)), 1)
    value, losses, _ = found["unused"]
    assert losses != pytest.approx(_compute(value))


@pytest.mark.provisions
def test_a_step_of_torch_is_followed_with_given_numbers(
    run_in_framework: Callable[..., str],
) -> None:
    found = json.loads(run_in_framework("torch", _TORCH).splitlines()[-1])
    for name, fair, num_draws in (
        ("fair", True, 2),
        ("uniform", True, 2),
        ("in one operator", True, 2),
        ("same numbers", True, 1),
        ("unused", False, 2),
    ):
        value, losses, distinct = found[name]
        assert (losses == pytest.approx(_compute(value))) == fair, name
        assert distinct == num_draws, name
    assert found["unknown"] == "aten::randint"
    assert found["generators"] == [["usual"], ["one of its own"]]


def test_every_draw_has_other_bits_and_every_side_the_same() -> None:
    bits = [make_bits(step, place, 50).tolist() for step in range(2) for place in range(3)]
    assert len(set(map(tuple, bits))) == 6
    assert make_bits(1, 2, 50).tolist() == bits[-1]
    uniform = make_uniform(1, 2, 100_000)
    assert 0 <= uniform.min() < uniform.max() < 1
    assert uniform.mean() == pytest.approx(0.5, abs=0.01)


def test_a_draw_that_repeats_an_earlier_one_is_seen() -> None:
    assert repeats(Followed(outputs=(), drawn=(b"1", b"2", b"1")))
    assert not repeats(Followed(outputs=(), drawn=(b"1", b"2")))


def test_losses_of_given_numbers_are_compared_where_one_side_draws(tmp_path: Path) -> None:
    def save(name: str, **evidence: float) -> dict[str, Path]:
        path = tmp_path / f"{name}.npz"
        np.savez(path, **{key: np.array([each]) for key, each in evidence.items()})  # type: ignore[arg-type]
        return {"start 0, after": path}

    def judge(*sides: dict[str, float]) -> dict[str, bool]:
        paths = {str(place): save(str(place), **each) for place, each in enumerate(sides)}
        rows = compare_all(paths, {"loss": 1e-5, "loss_trace": 1e-4})
        return {row["quantity"]: row["agrees"] for row in rows}

    both = {"loss": 1.0, "loss_trace": 1.0}
    assert DROPPED not in judge(both, both)
    assert judge({**both, DROPPED: 2.0}, {**both, DROPPED: 2.0001})[DROPPED]
    assert not judge({**both, DROPPED: 2.0}, {**both, DROPPED: 2.001})[DROPPED]
    assert not judge({**both, DROPPED: 2.0}, both)[DROPPED]


class _Program:
    """A training of one number that draws; `use_random` stores what was asked for."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def place(self, inputs: object) -> object:
        return inputs

    def step(self, inputs: object) -> object:
        self.calls.append("step")
        return inputs

    def reset(self, params: object) -> None:
        self.calls.append("reset")

    def use_random(self, on: bool) -> None:
        self.calls.append(on)

    def read(self, outputs: object) -> dict[str, np.ndarray]:
        return {"loss": np.ones(1)}


@pytest.mark.parametrize(
    ("drawn", "reading"),
    [((b"1", b"2"), None), ((b"1", b"1"), "numbers that were drawn before"), (None, "given")],
    ids=("fair", "repeated", "unknown"),
)
def test_a_drawing_training_is_followed_once_after_an_inspection(
    drawn: tuple[bytes, ...] | None, reading: str | None
) -> None:
    program = _Program()

    def draw_given(step: Callable[[], object], first: object, read: object) -> Followed:
        if drawn is None:
            raise ValueError("an operator")
        step()
        return Followed(outputs=[{"loss": np.ones(1)}, {"loss": np.zeros(1)}], drawn=drawn)

    runtime = SimpleNamespace(draw_given=draw_given, synchronise=lambda outputs: None)
    bound: Any = SimpleNamespace(program=program)
    unused: Any = SimpleNamespace()
    inspection = Inspection(runtime, bound, lambda *given: 0, alone=True, in_float32=unused)  # type: ignore[arg-type]
    start = Arrays(params={}, inputs={})
    assert inspection.take_losses(start) == {}, "nothing was inspected"
    inspection._draws = True
    assert inspection.take_losses(None) == {}
    found = inspection.take_losses(start)
    assert [each.tolist() for each in found.values()] == ([] if drawn is None else [[1.0, 0.0]])
    assert program.calls[:4] == [False, "reset", "step", True]
    assert program.calls[-1] == "reset"
    assert (reading or "None") in str(inspection._watched.get("generator"))
    assert inspection.take_losses(start) == {}

"""Drawn numbers of another distribution, and numbers that come back, are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.program import Arrays, ByName, Program, State
from benchcore.workloads.ops.random_numbers import (
    NORMAL,
    NUM_NUMBERS,
    TOLERANCES,
    UNIFORM,
    Distribution,
    measure_draws,
)
from benchcore.workloads.ops.spec import CASES, SPEC
from benchcore.workloads.ops.table import OPERATIONS

_SHAPE = (64, NUM_NUMBERS // 64)
"""A proof's steps, and the numbers of each."""


def _draw(wanted: Distribution, seed: int = 1) -> np.ndarray:
    return wanted.draw(np.random.default_rng(seed), _SHAPE)


def _refused(found: np.ndarray, wanted: Distribution) -> set[str]:
    """Quantities that are not the distribution's. `measured` compares both sides likewise."""
    measured, exact = measure_draws(found, wanted), wanted.exact
    assert set(measured) == set(exact) == set(wanted.tolerances)
    return {
        name
        for name, tolerance in wanted.tolerances.items()
        if np.abs(measured[name] - exact[name]).max() > tolerance * np.abs(exact[name]).max()
    }


@pytest.mark.parametrize("wanted", [UNIFORM, NORMAL], ids=["uniform", "normal"])
@pytest.mark.parametrize("seed", [1, 2])
def test_right_numbers_are_accepted_with_room_to_spare(wanted: Distribution, seed: int) -> None:
    found, exact = measure_draws(_draw(wanted, seed), wanted), wanted.exact
    for name, tolerance in wanted.tolerances.items():
        assert np.abs(found[name] - exact[name]).max() < 0.7 * tolerance, name


def _twelve(rng: np.random.Generator) -> np.ndarray:
    """A cheap normal distribution: its tails are too short."""
    return sum(rng.random(_SHAPE, dtype=np.float32) for _ in range(12)) - np.float32(6.0)


_WRONG: dict[str, tuple[Distribution, Callable[[np.ndarray], np.ndarray], str]] = {
    "variance 1 % too large": (NORMAL, lambda x: x * math.sqrt(1.01), "moments"),
    "variance 1 % too small": (UNIFORM, lambda x: (x - 0.5) * math.sqrt(0.99) + 0.5, "moments"),
    "mean off by 1 %": (NORMAL, lambda x: x + np.float32(0.01), "moments"),
    "up to 1.01": (UNIFORM, lambda x: x * np.float32(1.01), "bounds"),
    "one number is 1": (UNIFORM, lambda x: np.where(x == x.max(), np.float32(1), x), "bounds"),
    "from -0.001 on": (UNIFORM, lambda x: x - np.float32(1e-3), "bounds"),
    "triangular": (UNIFORM, lambda x: (x + np.roll(x, 1)) / 2, "distribution"),
    "no far numbers": (NORMAL, lambda x: x.clip(-3.9, 3.9), "tail"),
    "twelve uniform ones": (NORMAL, lambda x: _twelve(np.random.default_rng(1)), "tail"),
    "a constant stream": (UNIFORM, lambda x: np.full_like(x, 0.25), "independence"),
    "the same block in each step": (NORMAL, lambda x: np.repeat(x[:1], 64, 0), "independence"),
    "the same block twice": (UNIFORM, lambda x: np.repeat(x[::2], 2, 0), "independence"),
    "half a block twice": (
        NORMAL, lambda x: np.tile(x[:, : x.shape[1] // 2], 2), "independence",
    ),
    "a block, and its mirror image": (
        NORMAL, lambda x: np.concatenate([x[:, ::2], -x[:, ::2]], 1), "independence",
    ),
    "a block, and it backwards": (
        UNIFORM, lambda x: np.concatenate([x[:, ::2], x[:, ::-2]], 1), "independence",
    ),
    "eight bits": (UNIFORM, lambda x: np.floor(x * 256) / np.float32(256), "independence"),
}  # fmt: skip


@pytest.mark.parametrize("name", _WRONG)
def test_wrong_numbers_are_refused(name: str) -> None:
    wanted, spoil, quantity = _WRONG[name]
    found = spoil(_draw(wanted)).astype(np.float32)
    if name == "a block, and it backwards":
        found[:, found.shape[1] // 2 :] = found[:, : found.shape[1] // 2][:, ::-1]
    assert quantity in _refused(found, wanted)


def test_every_quantity_is_refused_in_some_test() -> None:
    assert {quantity for _, _, quantity in _WRONG.values()} == set(TOLERANCES)


def _make_program(flaw: str) -> Callable[[Any, Arrays], Program]:
    """Draws in NumPy. `flaw`: what is wrong with it."""

    def build(case: Any, arrays: Arrays) -> Program:
        rng, seed, kept, steps = np.random.default_rng(), arrays.params["seed"], [], 0

        def reset(params: ByName) -> None:
            nonlocal seed, steps
            seed, steps = params["seed"], 0
            rng.bit_generator.state = np.random.PCG64(int(seed[0])).state
            if "words" in params:
                words = [int(each) for each in params["words"]]
                found = rng.bit_generator.state
                found["state"]["state"] = sum(word << 32 * i for i, word in enumerate(words[:4]))
                found["has_uint32"], found["uinteger"] = words[4:]
                rng.bit_generator.state = found

        def state() -> State:
            whole = rng.bit_generator.state
            words = [(whole["state"]["state"] >> 32 * i) & 0xFFFFFFFF for i in range(4)]
            words += [whole["has_uint32"], whole["uinteger"]]
            return {"params": {"seed": seed, "words": np.array(words, dtype=np.uint32)}}

        def step(inputs: object) -> np.ndarray:
            nonlocal steps
            steps += 1
            if flaw == "same seed":
                reset({"seed": seed})
            if flaw == "cached" and len(kept) == 3:
                rng.bit_generator.advance(1)  # type: ignore[attr-defined]
                return kept[steps % 3]
            if flaw == "cached later" and steps > 200:
                return kept[0]
            kept.append(NORMAL.draw(rng, case.size))
            return kept[-1]

        reset(arrays.params)
        return Program(
            step=step, reset=reset, state=state, read=lambda numbers: {"numbers": numbers}
        )

    return build


def _prove(flaw: str) -> tuple[dict[str, Any], ...]:
    case = CASES["tiny_op_random_normal"]

    def wait(outputs: object) -> None:
        pass

    arrays = SPEC.make_arrays(case, 1)
    bound = BoundProgram(_make_program(flaw)(case, arrays), SPEC, case, arrays)
    known = dict(bound.prove(wait, wait))
    bound.check_left_behind(lambda step: [step() for _ in range(300)], wait)
    return known, dict(bound.prove(wait, wait, SPEC.make_arrays(case, 2)))


def test_a_program_that_draws_in_each_step_is_accepted() -> None:
    for found in _prove("none"):
        for name, tolerance in NORMAL.tolerances.items():
            assert np.abs(found[name] - NORMAL.exact[name]).max() < tolerance


@pytest.mark.parametrize("flaw", ["same seed", "cached"])
def test_numbers_that_come_back_are_refused(flaw: str) -> None:
    try:
        known, _ = _prove(flaw)
    except StepUnlikeProofError:
        return
    assert abs(known["independence"] - 1.0).max() > TOLERANCES["independence"]


def test_numbers_that_come_back_once_the_steps_are_timed_are_refused() -> None:
    with pytest.raises(StepUnlikeProofError, match="does something else"):
        _prove("cached later")


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("tiny")])
def test_numpy_computes_the_same(name: str) -> None:
    case = CASES[name]
    arrays = SPEC.make_arrays(case, 3)
    assert SPEC.in_numpy is not None and SPEC.reference is not None
    step = SPEC.in_numpy(case, arrays)
    found = np.asarray(step())
    wanted = OPERATIONS[case.operation].draws
    if wanted:
        assert found.shape == case.size and not np.array_equal(found, np.asarray(step()))
        return
    first = SPEC.reference(case, arrays)["result"][0]
    np.testing.assert_allclose(found, first, rtol=1e-3, atol=1e-3)

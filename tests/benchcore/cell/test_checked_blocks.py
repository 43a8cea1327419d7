"""Blocks that are checked between the timed ones: steps that work only while watched are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy_programs import (
    INFERENCE,
    NUM_STEPS,
    TRAINING,
    Learner,
    bind,
    descend,
    make_inference,
    multiply,
    skip_waiting,
)

from benchcore.cell.proof.steps import left_behind
from benchcore.cell.proof.steps.freshness import choose_number
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.cell.proof.training_blocks import MOST_STEPS
from benchcore.program import Program


def _is_odd_later(number: int) -> bool:
    return number > NUM_STEPS and number % 2 == 1


def test_a_checked_block_takes_unseen_inputs() -> None:
    """It computes, although timed steps return what was kept by their inputs."""
    honest, kept, computed = make_inference(multiply), dict[int, Any](), list[int]()

    def step(inputs: Any) -> Any:
        if id(inputs) not in kept:
            kept[id(inputs)] = inputs, honest.step(inputs)
            computed.append(1)
        return kept[id(inputs)][1]

    def run(number: int, each: Callable[[], object]) -> None:
        computed.clear()
        for _ in range(number):
            each()
        numbers.append((number, len(computed)))

    numbers: list[tuple[int, int]] = []
    bound = bind(replace(honest, step=step), INFERENCE)
    bound.check_block(run, skip_waiting, 9)
    assert numbers == []  # nothing is proven yet
    bound.prove(skip_waiting, skip_waiting)
    run(9, bound.step)
    run(9, bound.step)
    bound.check_block(run, skip_waiting, 9)
    *_, repeated, checked = numbers
    assert repeated == (9, 0)
    assert checked == (9, 9)


@pytest.mark.parametrize(
    ("size", "steps", "number"),
    [(1, 900, 64), (2**20, 900, 4), (2**26, 900, 3), (1, 20, 20), (1, 1, 3)],
)
def test_a_checked_block_has_the_steps_of_a_timed_one_as_far_as_a_cache_holds_them(
    size: int, steps: int, number: int
) -> None:
    assert choose_number({"images": np.zeros(size, np.float32)}, 3, steps) == number


def test_a_training_that_does_nothing_in_a_checked_block_is_found() -> None:
    def learn(learner: Learner, images: np.ndarray) -> float:
        if calls:
            return 0.0
        return descend(learner, images)

    calls: list[int] = []
    bound = bind(Learner(learn).make(), TRAINING)
    bound.prove(skip_waiting, skip_waiting)

    def run(number: int, each: Callable[[], object]) -> None:
        assert number == NUM_STEPS
        for _ in range(number):
            each()

    bound.check_block(run, skip_waiting, 9)
    calls.append(1)
    with pytest.raises(
        StepUnlikeProofError, match="did not lead to the state after the proof's steps"
    ):
        bound.check_block(run, skip_waiting, 9)


def _run(number: int, each: Callable[[], object]) -> None:
    for _ in range(number):
        each()


@pytest.mark.parametrize(
    ("stops", "found"),
    [(lambda unseen: False, False), (lambda unseen: unseen > 8, True), (_is_odd_later, True)],
    ids=["never", "after eight steps", "in every other step"],
)
def test_a_training_that_stops_in_a_longer_block_is_found(
    stops: Callable[[int], bool], found: bool
) -> None:
    """It works as long as somebody looks at it: a block of the proof's six steps shows nothing."""

    def learn(learner: Learner, images: np.ndarray) -> float:
        learner.num_steps += 1
        return 0.0 if stops(learner.num_steps) else descend(learner, images)

    learner = Learner(learn)
    honest = learner.make()

    def state() -> Any:
        learner.num_steps = 0
        return honest.state()

    def read(outputs: Any) -> Any:
        learner.num_steps = 0
        return honest.read(outputs)

    bound = bind(replace(honest, state=state, read=read), TRAINING)
    bound.prove(skip_waiting, skip_waiting)
    bound.check_block(_run, skip_waiting, 9)
    before = learner.num_steps, learner.weight
    assert bound.check_long_block(_run, skip_waiting, NUM_STEPS, random=True) is None
    assert learner.num_steps == before[0] and learner.weight is before[1], "nothing ran"
    refused = None
    try:
        assert bound.check_long_block(_run, skip_waiting, 900, random=True) == MOST_STEPS
    except StepUnlikeProofError as error:
        refused = str(error)
    assert (refused is not None) == found
    if refused is not None:
        assert refused.startswith("a block of 32 steps moved its params by ")
        assert refused.endswith("the timed step does its work only sometimes")


def test_a_training_whose_way_rounding_decides_must_only_go_as_far() -> None:
    start, away = {"params": {"w": np.zeros(100)}}, np.ones(100)
    back = {"params": {"w": -away}}
    left_behind.check_travel(start, {"params": {"w": away}}, back, 9)
    with pytest.raises(StepUnlikeProofError, match=r"by 7\.5, where as many single .* by 10:"):
        left_behind.check_travel(start, {"params": {"w": 0.75 * away}}, back, 9)


def test_a_training_that_is_right_only_without_random_numbers_is_found() -> None:
    """Where nothing is drawn, steps without random numbers are like the others."""
    random = True

    def use_random(on: bool) -> None:
        nonlocal random
        random = on

    def learn(learner: Learner, images: np.ndarray) -> float:
        return descend(learner, images[:1] if random else images)

    for program, found in ((Learner(descend), False), (Learner(learn), True)):
        bound = bind(replace(program.make(), use_random=use_random), TRAINING)
        bound.prove(skip_waiting, skip_waiting)
        bound.check_block(_run, skip_waiting, 9)
        with (
            pytest.raises(StepUnlikeProofError, match="did not lead to the state after")
            if found
            else nullcontext()
        ):
            bound.check_training(_run, random=True)


class _Pairs:
    """Takes two steps at once: every other step computes nothing, unless somebody reads. Steps on
    inputs that are `new` to it may be taken at once."""

    def __init__(self, honest: Program, *, new: bool = False) -> None:
        self._honest, self._new = honest, new
        self._known: list[Any] = []
        self._waiting: list[Any] = []
        self._latest: Any = None

    def make(self) -> Program:
        own = {"step": self._step, "read": self._read, "state": self._state}
        return replace(self._honest, reset=self._reset, **own)

    def _reset(self, params: Mapping[str, np.ndarray]) -> None:
        self._waiting.clear()
        self._honest.reset(params)

    def _flush(self) -> None:
        for each in self._waiting:
            self._latest = self._honest.step(each)
        self._waiting.clear()

    def _step(self, inputs: Any) -> Any:
        self._waiting.append(inputs)
        is_new = self._new and not any(inputs is each for each in self._known)
        self._known.append(inputs)
        if len(self._waiting) == 2 or self._latest is None or is_new:
            self._flush()
        return self._latest

    def _read(self, outputs: Any) -> Any:
        if not self._waiting:
            return self._honest.read(outputs)
        self._flush()
        return self._honest.read(self._latest)

    def _state(self) -> Any:
        self._flush()
        return self._honest.state()


def test_a_training_that_takes_two_steps_at_once_is_found() -> None:
    for program, found in ((Learner(descend).make(), False), (None, True)):
        bound = bind(program or _Pairs(Learner(descend).make()).make(), TRAINING)
        bound.check_returned(_run)
        bound.step()  # the first one is computed at once
        bound.prove(skip_waiting, skip_waiting)
        bound.check_block(_run, skip_waiting, 9)
        with (
            pytest.raises(StepUnlikeProofError, match="is not among what the step returned")
            if found
            else nullcontext()
        ):
            bound.check_returned(_run)


def test_outputs_of_two_steps_at_once_are_found() -> None:
    """Of rows that depend on those before them: else each set of inputs has the same outputs in
    another order, and only the calls show it (`test_same_work.py`)."""
    spec = replace(INFERENCE, num_buffers=lambda case: 4)
    honest = make_inference(lambda weight, images: np.cumsum(multiply(weight, images)))
    for program, found in ((honest, False), (_Pairs(honest, new=True).make(), True)):
        bound = bind(program, spec)
        bound.step()
        bound.prove(skip_waiting, skip_waiting)
        with (
            pytest.raises(StepUnlikeProofError, match="is not among what the step returned")
            if found
            else nullcontext()
        ):
            bound.check_left_behind(lambda each: [each() for _ in range(20)], skip_waiting)

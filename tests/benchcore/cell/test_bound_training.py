"""A timed training step that is not the proven one is found by what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy_programs import (
    NUM_STEPS,
    TRAINING,
    Learner,
    bind,
    compare_evidence,
    descend,
    make_arrays,
    prove,
    skip_waiting,
)

from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError


def test_a_training_step_that_no_longer_learns_is_found_by_its_state() -> None:
    calls = 0

    def learn(learner: Learner, images: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        return descend(learner, images) if calls <= 2 * NUM_STEPS else 0.0

    bound = bind(Learner(learn).make(), TRAINING)
    bound.prove(skip_waiting, skip_waiting)
    with pytest.raises(StepUnlikeProofError, match="'params/weight' is the same before and after"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], skip_waiting)


@pytest.mark.parametrize(
    ("share", "error"),
    [(0.9, "its params are off by"), (0.0, "are off by")],
)
def test_a_training_step_that_learns_too_little_in_the_end_is_found(
    share: float, error: str
) -> None:
    def learn(learner: Learner, images: np.ndarray) -> float:
        before = learner.weight
        loss = descend(learner, images)
        learner.num_steps += 1
        if learner.num_steps > 4 * NUM_STEPS:  # a reset makes it honest again
            learner.weight = before + share * (learner.weight - before)
        return loss

    bound = bind(Learner(learn).make(), TRAINING)
    bound.prove(skip_waiting, skip_waiting)
    with pytest.raises(StepUnlikeProofError, match=error):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], skip_waiting)


def test_a_training_step_that_learns_now_and_then_is_found() -> None:
    def learn(learner: Learner, images: np.ndarray) -> float:
        before = learner.weight
        loss = descend(learner, images)
        learner.num_steps += 1
        if learner.num_steps > 20 and learner.num_steps % 4 != 1:
            learner.weight = before
        return loss

    bound = bind(Learner(learn).make(), TRAINING)
    bound.prove(skip_waiting, skip_waiting)
    with pytest.raises(StepUnlikeProofError, match="does its work only sometimes"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], skip_waiting)


def test_a_training_step_whose_counter_outlives_a_reset_is_found() -> None:
    taken = 0

    def learn(learner: Learner, images: np.ndarray) -> float:
        nonlocal taken
        before = learner.weight
        loss = descend(learner, images)
        taken += 1
        if taken > 40 and taken % 4 != 1:
            learner.weight = before
        return loss

    bound = bind(Learner(learn).make(), TRAINING)
    bound.prove(skip_waiting, skip_waiting)
    with pytest.raises(StepUnlikeProofError, match=r"only sometimes|are off by"):
        bound.check_left_behind(lambda each: [each() for _ in range(40)], skip_waiting)


def test_a_right_step_may_leave_its_parameters_where_a_gradient_vanishes() -> None:
    """As that of the one sample of a batch which the network has learnt; others still move them."""

    def learn(learner: Learner, images: np.ndarray) -> float:
        sums = images @ learner.weight
        learner.num_steps += 1
        known = learner.vanishes and images[0, 0] == make_arrays(None, 1).inputs["images"][0, 0]
        learner.weight = learner.weight - (0 if known else 1e-4) * images.T @ sums
        return float(np.square(sums).mean())

    learner = Learner(learn)
    bound = bind(learner.make(), TRAINING)
    bound.prove(skip_waiting, skip_waiting)
    learner.vanishes = True
    refused = None
    try:
        bound.check_left_behind(lambda each: [each() for _ in range(20)], skip_waiting)
    except StepUnlikeProofError as error:
        refused = str(error)
    assert refused is None


def test_a_training_step_that_returns_an_old_loss_in_the_end_is_found() -> None:
    def learn(learner: Learner, images: np.ndarray) -> float:
        learner.num_steps += 1
        loss = descend(learner, images)
        return loss if learner.num_steps <= 20 else 1.0

    bound = bind(Learner(learn).make(), TRAINING)
    bound.prove(skip_waiting, skip_waiting)
    with pytest.raises(StepUnlikeProofError, match="its outputs are off by"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], skip_waiting)


def test_a_training_step_that_ends_in_nan_is_found() -> None:
    def learn(learner: Learner, images: np.ndarray) -> float:
        learner.num_steps += 1
        loss = descend(learner, images)
        if learner.num_steps > 2 * NUM_STEPS:
            learner.weight = learner.weight * np.nan
        return loss

    bound = bind(Learner(learn).make(), TRAINING)
    bound.prove(skip_waiting, skip_waiting)
    with pytest.raises(StepUnlikeProofError, match="is not finite after the timed steps"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], skip_waiting)


def test_a_right_training_step_passes_and_its_block_leaves_what_single_steps_leave() -> None:
    bound = bind(Learner(descend).make(), TRAINING)
    evidence = bound.prove(skip_waiting, skip_waiting)
    bound.check_left_behind(lambda each: [each() for _ in range(20)], skip_waiting)
    assert len(evidence["loss_trace"]) == NUM_STEPS
    again = prove(Learner(descend).make(), TRAINING)
    assert not compare_evidence({"known": evidence}, {"known": again["known"]})["known"]


def test_a_step_that_is_wrong_only_without_synchronisation_is_found_by_the_block() -> None:
    """Such as one whose outputs the next step overwrites."""
    waited = True

    def learn(learner: Learner, images: np.ndarray) -> float:
        nonlocal waited
        loss = descend(learner, images) if waited else 0.0
        waited = False
        return loss

    def wait(outputs: object) -> None:
        nonlocal waited
        waited = True

    right = prove(Learner(descend).make(), TRAINING)
    bound = bind(Learner(learn).make(), TRAINING)
    found = bound.prove(wait, skip_waiting)
    assert compare_evidence({"known": found}, {"known": right["known"]})["known"]


def test_an_update_that_is_made_when_the_state_is_read_is_found() -> None:
    learner = Learner(descend)
    honest, pending = learner.make(), list[Any]()

    def state() -> Any:
        while pending:
            honest.step(pending.pop(0))
        return honest.state()

    def step(inputs: Any) -> Any:
        pending.append(inputs)
        return np.zeros(()), learner.weight

    late = replace(honest, step=step, state=state, read=lambda outputs: {"loss": outputs[0]})
    with pytest.raises(StepUnlikeProofError, match="'weight' is not among what the step returned"):
        bind(late, TRAINING).prove(skip_waiting, skip_waiting)


@pytest.mark.parametrize(
    ("learn", "reason"),
    [
        (lambda learner, images: descend(learner, images[:1]), "has the loss"),
        (lambda learner, images: float(np.square(images @ learner.weight).mean()), "off by"),
    ],
    ids=("half of the batch", "no update"),
)
def test_training_on_a_data_set_must_be_the_proven_step(
    learn: Callable[[Learner, np.ndarray], float], reason: str
) -> None:
    learner = Learner(descend)
    bound = bind(learner.make(), TRAINING)
    (images,) = bound.inputs
    bound.check_learning(lambda: np.array(descend(learner, images)), skip_waiting)
    with pytest.raises(StepUnlikeProofError, match=reason):
        bound.check_learning(lambda: np.array(learn(learner, images)), skip_waiting)


@pytest.mark.parametrize(
    ("learn", "reason"),
    [
        (lambda learner, images: descend(learner, images), None),
        (lambda learner, images: learner.num_steps % 2 or descend(learner, images), "sometimes"),
        (lambda learner, images: descend(learner, images[:1]), "after one more timed step"),
    ],
    ids=("fair", "now and then", "half of the batch"),
)
def test_an_epoch_must_learn_to_its_end(
    learn: Callable[[Learner, np.ndarray], float], reason: str | None
) -> None:
    """What is timed on a data set is no step, but what an epoch does with a batch."""
    learner = Learner(descend)
    bound = bind(learner.make(), TRAINING)
    bound.prove(skip_waiting, skip_waiting)
    (images,) = bound.inputs
    batches = 0

    def learn_first() -> object:
        nonlocal batches
        batches += 1
        if batches < 4:
            return np.array(descend(learner, images))
        learner.num_steps = batches
        return np.array(learn(learner, images))

    for _ in range(9):
        learn_first()
    with pytest.raises(StepUnlikeProofError, match=reason) if reason else nullcontext():
        bound.check_left_behind(
            lambda each: [each() for _ in range(20)], skip_waiting, learn=learn_first
        )


def test_a_loss_may_be_returned_as_a_number() -> None:
    learner = Learner(descend)
    program = replace(
        learner.make(),
        step=lambda inputs: (descend(learner, inputs[0]), learner.weight),
        read=lambda outputs: {"loss": np.array(outputs[0])},
    )
    assert len(bind(program, TRAINING).prove(skip_waiting, skip_waiting)["loss_trace"]) == NUM_STEPS

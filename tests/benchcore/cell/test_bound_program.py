"""The step that is timed is the one that is proven: steps that do something else are found out."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy_programs import (
    BATCH,
    CASE,
    INFERENCE,
    bind,
    compare_evidence,
    make_arrays,
    make_inference,
    multiply,
    prove,
    skip_waiting,
)

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.proof.manifest import _count_input_buffers
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.program import Arrays, Program


def test_a_right_step_leaves_the_same_evidence_again_and_passes() -> None:
    evidence = prove(make_inference(multiply), INFERENCE)
    assert evidence["known"]["sums"].shape == (3, BATCH)
    assert compare_evidence(evidence, prove(make_inference(multiply), INFERENCE)) == {
        "known": False,
        "other": False,
    }
    bound = bind(make_inference(multiply), INFERENCE)
    bound.prove(skip_waiting, skip_waiting)
    for steps in range(1, 8):  # whatever the turn at which the block ends
        bound.check_left_behind(lambda step, n=steps: [step() for _ in range(n)], skip_waiting)


def test_inputs_may_be_a_bare_array() -> None:
    weight = make_arrays(None, 1).params["weight"]
    program = bind(
        Program(
            place=lambda inputs: inputs["images"],
            step=lambda images: images @ weight,
            read=lambda sums: {"sums": sums},
        ),
        INFERENCE,
    )
    program.prove(skip_waiting, skip_waiting)
    program.check_left_behind(lambda step: step(), skip_waiting)
    address = SimpleNamespace(address=None)
    assert _count_input_buffers(address, program) == "3"  # type: ignore[arg-type]


def test_sets_of_inputs_that_share_their_labels_are_several() -> None:
    labels = np.zeros(BATCH)
    program = bind(
        Program(
            place=lambda inputs: {"labels": labels, "images": inputs["images"].copy()},
            step=lambda inputs: inputs,
        ),
        INFERENCE,
    )
    address = SimpleNamespace(address=None)
    assert _count_input_buffers(address, program) == "3"  # type: ignore[arg-type]


def test_devices_share_a_step_only_where_a_case_has_several() -> None:
    program = make_inference(lambda weight, images: images @ weight)
    arrays = make_arrays(CASE, 1)
    one, two = (
        BoundProgram(program, INFERENCE, SimpleNamespace(devices=devices), arrays)
        for devices in (1, 2)
    )
    held = {"state": [arrays.params["weight"]], "inputs": [arrays.inputs["images"][:2]]}
    assert one.describe_sharing(held) == {}
    assert two.describe_sharing(held) == {"strategy": "data", "state_held": "800 bytes"}


def test_a_step_that_returns_what_it_computed_first_is_found_by_the_next_inputs() -> None:
    kept: list[np.ndarray] = []

    def step(weight: np.ndarray, images: np.ndarray) -> np.ndarray:
        kept.append(multiply(weight, images))
        return kept[0]

    assert compare_evidence(
        prove(make_inference(step), INFERENCE), prove(make_inference(multiply), INFERENCE)
    )["known"]


def test_a_step_that_caches_results_by_input_is_found_by_unseen_inputs() -> None:
    """By their place in the turn: as one does whose inputs are constants of the program."""
    kept: dict[int, np.ndarray] = {}
    turn = 0

    def step(weight: np.ndarray, images: np.ndarray) -> np.ndarray:
        nonlocal turn
        turn += 1
        return kept.setdefault(turn % 3, multiply(weight, images))

    assert compare_evidence(
        prove(make_inference(step), INFERENCE), prove(make_inference(multiply), INFERENCE)
    ) == {
        "known": False,
        "other": True,
    }


def test_parameters_that_are_constants_of_the_program_are_found() -> None:
    frozen = make_arrays(None, 1).params["weight"]
    found = prove(make_inference(lambda _, images: multiply(frozen, images)), INFERENCE)
    assert compare_evidence(found, prove(make_inference(multiply), INFERENCE)) == {
        "known": False,
        "other": True,
    }


def test_a_step_that_stops_computing_once_it_is_timed_is_found_by_its_last_outputs() -> None:
    calls, kept = 0, np.zeros(BATCH)

    def step(weight: np.ndarray, images: np.ndarray) -> np.ndarray:
        nonlocal calls, kept
        calls += 1
        if calls <= 10:
            kept = multiply(weight, images)
        return kept

    bound = bind(make_inference(step), INFERENCE)
    bound.prove(skip_waiting, skip_waiting)
    with pytest.raises(StepUnlikeProofError, match="'sums' of the last step of a block"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], skip_waiting)


def test_outputs_that_are_repeated_by_count_are_not_those_of_the_inputs_whose_turn_it_is() -> None:
    calls, kept = 0, list[np.ndarray]()

    def step(weight: np.ndarray, images: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls > 12:
            return kept[(calls - 1) % 3]
        kept.append(multiply(weight, images))
        return kept[-1]

    bound = bind(make_inference(step), INFERENCE)
    bound.prove(skip_waiting, skip_waiting)
    with pytest.raises(StepUnlikeProofError, match="'sums' of the last step of a block"):
        bound.check_left_behind(lambda each: [each() for _ in range(21)], skip_waiting)


def test_a_step_that_is_honest_on_known_inputs_and_after_a_reset_is_found() -> None:
    calls = 0

    def reset(params: Mapping[str, np.ndarray]) -> None:
        nonlocal calls
        calls = 0
        honest.reset(params)

    def step(inputs: tuple[np.ndarray]) -> np.ndarray:
        nonlocal calls
        calls += 1
        known = any(inputs is each for each in bound.rotation.buffers)
        return np.zeros(BATCH) if calls > 12 and not known else honest.step(inputs)  # type: ignore[return-value]

    honest = make_inference(multiply)
    bound = bind(replace(honest, step=step, reset=reset), INFERENCE)
    bound.prove(skip_waiting, skip_waiting)
    with pytest.raises(StepUnlikeProofError, match="'sums' on unseen inputs"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], skip_waiting)


def test_a_step_that_computes_when_its_outputs_are_read_is_found() -> None:
    honest = make_inference(multiply)
    returns_inputs = replace(
        honest,
        step=lambda inputs: inputs,
        read=lambda inputs: honest.read(honest.step(inputs)),
    )

    def fill(outputs: Any) -> Mapping[str, np.ndarray]:
        inputs, sums = outputs
        sums[:] = honest.step(inputs)
        return {"sums": sums}

    fills = replace(honest, step=lambda inputs: (inputs, np.zeros(BATCH)), read=fill)
    assert len(bind(honest, INFERENCE).prove(skip_waiting, skip_waiting)["sums"]) == 3
    for program in (returns_inputs, fills):
        with pytest.raises(StepUnlikeProofError, match="the timed step leaves work for later"):
            bind(program, INFERENCE).prove(skip_waiting, skip_waiting)


class _Turner:
    """Turns the sign of an array in place, without inputs; `turn` may be replaced."""

    def __init__(self) -> None:
        self.values, self.calls = np.ones(3), 0

    def turn(self) -> None:
        self.values = -self.values

    def reset(self, params: Mapping[str, np.ndarray]) -> None:
        self.values, self.calls = np.ones(3), 0

    def step(self, inputs: object) -> None:
        self.turn()

    def step_at_first(self, inputs: object) -> None:
        self.calls += 1
        if self.calls < 10:
            self.turn()

    def read(self, outputs: object) -> dict[str, np.ndarray]:
        return {"sums": self.values}

    def turn_and_read(self, outputs: object) -> dict[str, np.ndarray]:
        self.turn()
        return {"sums": self.values}


@pytest.mark.parametrize(
    ("step", "read", "error"),
    [
        ("step", "read", None),
        ("step_at_first", "read", "did not change its outputs"),
        ("reset", "turn_and_read", "'sums' read a second time"),
    ],
)
def test_a_step_without_inputs_must_change_its_outputs_and_reading_must_not(
    step: str, read: str, error: str | None
) -> None:
    turner = _Turner()
    program = Program(step=getattr(turner, step), reset=turner.reset, read=getattr(turner, read))
    spec = replace(INFERENCE, num_buffers=lambda case: 1, num_proof_steps=lambda case: 3)
    bound = BoundProgram(program, spec, CASE, Arrays(params={}, inputs={}))
    bound.prove(skip_waiting, skip_waiting)
    with pytest.raises(StepUnlikeProofError, match=error) if error else contextlib.nullcontext():
        bound.check_left_behind(lambda each: [each() for _ in range(20)], skip_waiting)

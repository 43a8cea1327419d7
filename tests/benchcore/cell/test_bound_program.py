"""The step that is timed is the one that is proven: steps that do something else are found out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.proof.manifest import _count_input_buffers
from benchcore.cell.proof.steps import left_behind
from benchcore.cell.proof.steps.freshness import choose_number
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.cell.proof.training_blocks import MOST_STEPS
from benchcore.program import Arrays, Program, Steps
from benchcore.workloads.contract import Spec

_BATCH, _NUM_STEPS = 4, 6
_CASE = SimpleNamespace(precision="fp32_ieee")


def _make_arrays(case: Any, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return Arrays(
        params={"weight": rng.standard_normal(100)},
        inputs={"images": rng.standard_normal((_BATCH, 100))},
    )


def _summarise(case: Any, steps: Steps) -> dict[str, np.ndarray]:
    travel = steps.after_last["params"]["weight"] - steps.before["weight"]
    return {"loss_trace": np.array([each["loss"] for each in steps.outputs]), "travel": travel}


_SPEC = Spec(
    cases={},
    make_arrays=_make_arrays,
    flops=lambda case: 0,
    least_bytes=lambda case: 0,
    tolerances=lambda case: {"sums": 1e-9},
    num_buffers=lambda case: 3,
)
_TRAINED = Spec(
    cases={},
    make_arrays=_make_arrays,
    flops=lambda case: 0,
    least_bytes=lambda case: 0,
    tolerances=lambda case: {},
    num_buffers=lambda case: 3,
    num_proof_steps=lambda case: _NUM_STEPS,
    summarise=_summarise,
    advance=lambda case, before, after, fresh: {"params": fresh["params"]},
)


def _infer(step: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Program:
    weight = _make_arrays(None, 1).params["weight"]

    def reset(params: Mapping[str, np.ndarray]) -> None:
        nonlocal weight
        weight = params["weight"]

    return Program(
        place=lambda inputs: (inputs["images"],),
        step=lambda inputs: step(weight, inputs[0]),
        reset=reset,
        read=lambda sums: {"sums": sums},
    )


class _Learner:
    """Gradient descent on the squares of weight times images; `learn` may be replaced."""

    def __init__(self, learn: Callable[[_Learner, np.ndarray], float]) -> None:
        self.weight, self.num_steps = _make_arrays(None, 1).params["weight"], 0
        self.vanishes = False
        self._learn = learn

    def make(self) -> Program:
        return Program(
            place=lambda inputs: (inputs["images"],),
            step=lambda inputs: (np.array(self._learn(self, inputs[0])), self.weight),
            reset=self._reset,
            read=lambda outputs: {"loss": outputs[0]},
            state=lambda: {"params": {"weight": self.weight.copy()}},
        )

    def _reset(self, params: Mapping[str, np.ndarray]) -> None:
        self.weight, self.num_steps = params["weight"].copy(), 0


def _learn(learner: _Learner, images: np.ndarray) -> float:
    sums = images @ learner.weight
    learner.weight = learner.weight - 1e-4 * images.T @ sums
    return float(np.square(sums).mean())


def _is_odd_later(number: int) -> bool:
    return number > _NUM_STEPS and number % 2 == 1


def _wait(outputs: object) -> None:
    pass


def _bind(program: Program, spec: Spec) -> BoundProgram:
    return BoundProgram(program, spec, _CASE, _make_arrays(_CASE, 1))


def _prove(program: Program, spec: Spec, seed: int = 2) -> dict[str, Any]:
    """Evidence from the known proof inputs and from others."""
    bound = _bind(program, spec)
    known = bound.prove(_wait, _wait)
    return {"known": known, "other": bound.prove(_wait, _wait, _make_arrays(None, seed))}


def _differ(one: dict[str, Any], other: dict[str, Any]) -> dict[str, bool]:
    return {
        start: any(
            not np.allclose(one[start][name], other[start][name], rtol=1e-9) for name in one[start]
        )
        for start in one
    }


def _right(weight: np.ndarray, images: np.ndarray) -> np.ndarray:
    return images @ weight


def test_a_right_step_leaves_the_same_evidence_again_and_passes() -> None:
    evidence = _prove(_infer(_right), _SPEC)
    assert evidence["known"]["sums"].shape == (3, _BATCH)
    assert _differ(evidence, _prove(_infer(_right), _SPEC)) == {"known": False, "other": False}
    bound = _bind(_infer(_right), _SPEC)
    bound.prove(_wait, _wait)
    for steps in range(1, 8):  # whatever the turn at which the block ends
        bound.check_left_behind(lambda step, n=steps: [step() for _ in range(n)], _wait)


def test_inputs_may_be_a_bare_array() -> None:
    weight = _make_arrays(None, 1).params["weight"]
    program = _bind(
        Program(
            place=lambda inputs: inputs["images"],
            step=lambda images: images @ weight,
            read=lambda sums: {"sums": sums},
        ),
        _SPEC,
    )
    program.prove(_wait, _wait)
    program.check_left_behind(lambda step: step(), _wait)
    address = SimpleNamespace(address=None)
    assert _count_input_buffers(address, program) == "3"  # type: ignore[arg-type]


def test_sets_of_inputs_that_share_their_labels_are_several() -> None:
    labels = np.zeros(_BATCH)
    program = _bind(
        Program(
            place=lambda inputs: {"labels": labels, "images": inputs["images"].copy()},
            step=lambda inputs: inputs,
        ),
        _SPEC,
    )
    address = SimpleNamespace(address=None)
    assert _count_input_buffers(address, program) == "3"  # type: ignore[arg-type]


def test_devices_share_a_step_only_where_a_case_has_several() -> None:
    program = _infer(lambda weight, images: images @ weight)
    arrays = _make_arrays(_CASE, 1)
    one, two = (
        BoundProgram(program, _SPEC, SimpleNamespace(devices=devices), arrays) for devices in (1, 2)
    )
    held = {"state": [arrays.params["weight"]], "inputs": [arrays.inputs["images"][:2]]}
    assert one.describe_sharing(held) == {}
    assert two.describe_sharing(held) == {"strategy": "data", "state_held": "800 bytes"}


def test_a_step_that_returns_what_it_computed_first_is_found_by_the_next_inputs() -> None:
    kept: list[np.ndarray] = []

    def step(weight: np.ndarray, images: np.ndarray) -> np.ndarray:
        kept.append(_right(weight, images))
        return kept[0]

    assert _differ(_prove(_infer(step), _SPEC), _prove(_infer(_right), _SPEC))["known"]


def test_a_step_that_caches_results_by_input_is_found_by_unseen_inputs() -> None:
    """By their place in the turn: as one does whose inputs are constants of the program."""
    kept: dict[int, np.ndarray] = {}
    turn = 0

    def step(weight: np.ndarray, images: np.ndarray) -> np.ndarray:
        nonlocal turn
        turn += 1
        return kept.setdefault(turn % 3, _right(weight, images))

    assert _differ(_prove(_infer(step), _SPEC), _prove(_infer(_right), _SPEC)) == {
        "known": False,
        "other": True,
    }


def test_parameters_that_are_constants_of_the_program_are_found() -> None:
    frozen = _make_arrays(None, 1).params["weight"]
    found = _prove(_infer(lambda _, images: _right(frozen, images)), _SPEC)
    assert _differ(found, _prove(_infer(_right), _SPEC)) == {"known": False, "other": True}


def test_a_step_that_stops_computing_once_it_is_timed_is_found_by_its_last_outputs() -> None:
    calls, kept = 0, np.zeros(_BATCH)

    def step(weight: np.ndarray, images: np.ndarray) -> np.ndarray:
        nonlocal calls, kept
        calls += 1
        if calls <= 10:
            kept = _right(weight, images)
        return kept

    bound = _bind(_infer(step), _SPEC)
    bound.prove(_wait, _wait)
    with pytest.raises(StepUnlikeProofError, match="'sums' of the last step of a block"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait)


def test_a_training_step_that_no_longer_learns_is_found_by_its_state() -> None:
    calls = 0

    def learn(learner: _Learner, images: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        return _learn(learner, images) if calls <= 2 * _NUM_STEPS else 0.0

    bound = _bind(_Learner(learn).make(), _TRAINED)
    bound.prove(_wait, _wait)
    with pytest.raises(StepUnlikeProofError, match="'params/weight' is the same before and after"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait)


@pytest.mark.parametrize(
    ("share", "error"),
    [(0.9, "its params are off by"), (0.0, "are off by")],
)
def test_a_training_step_that_learns_too_little_in_the_end_is_found(
    share: float, error: str
) -> None:
    def learn(learner: _Learner, images: np.ndarray) -> float:
        before = learner.weight
        loss = _learn(learner, images)
        learner.num_steps += 1
        if learner.num_steps > 4 * _NUM_STEPS:  # a reset makes it honest again
            learner.weight = before + share * (learner.weight - before)
        return loss

    bound = _bind(_Learner(learn).make(), _TRAINED)
    bound.prove(_wait, _wait)
    with pytest.raises(StepUnlikeProofError, match=error):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait)


def test_a_training_step_that_learns_now_and_then_is_found() -> None:
    def learn(learner: _Learner, images: np.ndarray) -> float:
        before = learner.weight
        loss = _learn(learner, images)
        learner.num_steps += 1
        if learner.num_steps > 20 and learner.num_steps % 4 != 1:
            learner.weight = before
        return loss

    bound = _bind(_Learner(learn).make(), _TRAINED)
    bound.prove(_wait, _wait)
    with pytest.raises(StepUnlikeProofError, match="does its work only sometimes"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait)


def test_a_training_step_whose_counter_outlives_a_reset_is_found() -> None:
    taken = 0

    def learn(learner: _Learner, images: np.ndarray) -> float:
        nonlocal taken
        before = learner.weight
        loss = _learn(learner, images)
        taken += 1
        if taken > 40 and taken % 4 != 1:
            learner.weight = before
        return loss

    bound = _bind(_Learner(learn).make(), _TRAINED)
    bound.prove(_wait, _wait)
    with pytest.raises(StepUnlikeProofError, match=r"only sometimes|are off by"):
        bound.check_left_behind(lambda each: [each() for _ in range(40)], _wait)


def test_a_right_step_may_leave_its_parameters_where_a_gradient_vanishes() -> None:
    """As that of the one sample of a batch which the network has learnt; others still move them."""

    def learn(learner: _Learner, images: np.ndarray) -> float:
        sums = images @ learner.weight
        learner.num_steps += 1
        known = learner.vanishes and images[0, 0] == _make_arrays(None, 1).inputs["images"][0, 0]
        learner.weight = learner.weight - (0 if known else 1e-4) * images.T @ sums
        return float(np.square(sums).mean())

    learner = _Learner(learn)
    bound = _bind(learner.make(), _TRAINED)
    bound.prove(_wait, _wait)
    learner.vanishes = True
    refused = None
    try:
        bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait)
    except StepUnlikeProofError as error:
        refused = str(error)
    assert refused is None


def test_a_training_step_that_returns_an_old_loss_in_the_end_is_found() -> None:
    def learn(learner: _Learner, images: np.ndarray) -> float:
        learner.num_steps += 1
        loss = _learn(learner, images)
        return loss if learner.num_steps <= 20 else 1.0

    bound = _bind(_Learner(learn).make(), _TRAINED)
    bound.prove(_wait, _wait)
    with pytest.raises(StepUnlikeProofError, match="its outputs are off by"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait)


def test_a_training_step_that_ends_in_nan_is_found() -> None:
    def learn(learner: _Learner, images: np.ndarray) -> float:
        learner.num_steps += 1
        loss = _learn(learner, images)
        if learner.num_steps > 2 * _NUM_STEPS:
            learner.weight = learner.weight * np.nan
        return loss

    bound = _bind(_Learner(learn).make(), _TRAINED)
    bound.prove(_wait, _wait)
    with pytest.raises(StepUnlikeProofError, match="is not finite after the timed steps"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait)


def test_a_right_training_step_passes_and_its_block_leaves_what_single_steps_leave() -> None:
    bound = _bind(_Learner(_learn).make(), _TRAINED)
    evidence = bound.prove(_wait, _wait)
    bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait)
    assert len(evidence["loss_trace"]) == _NUM_STEPS
    again = _prove(_Learner(_learn).make(), _TRAINED)
    assert not _differ({"known": evidence}, {"known": again["known"]})["known"]


def test_a_step_that_is_wrong_only_without_synchronisation_is_found_by_the_block() -> None:
    """Such as one whose outputs the next step overwrites."""
    waited = True

    def learn(learner: _Learner, images: np.ndarray) -> float:
        nonlocal waited
        loss = _learn(learner, images) if waited else 0.0
        waited = False
        return loss

    def wait(outputs: object) -> None:
        nonlocal waited
        waited = True

    right = _prove(_Learner(_learn).make(), _TRAINED)
    bound = _bind(_Learner(learn).make(), _TRAINED)
    found = bound.prove(wait, _wait)
    assert _differ({"known": found}, {"known": right["known"]})["known"]


def test_outputs_that_are_repeated_by_count_are_not_those_of_the_inputs_whose_turn_it_is() -> None:
    calls, kept = 0, list[np.ndarray]()

    def step(weight: np.ndarray, images: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls > 12:
            return kept[(calls - 1) % 3]
        kept.append(_right(weight, images))
        return kept[-1]

    bound = _bind(_infer(step), _SPEC)
    bound.prove(_wait, _wait)
    with pytest.raises(StepUnlikeProofError, match="'sums' of the last step of a block"):
        bound.check_left_behind(lambda each: [each() for _ in range(21)], _wait)


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
        return np.zeros(_BATCH) if calls > 12 and not known else honest.step(inputs)  # type: ignore[return-value]

    honest = _infer(_right)
    bound = _bind(replace(honest, step=step, reset=reset), _SPEC)
    bound.prove(_wait, _wait)
    with pytest.raises(StepUnlikeProofError, match="'sums' on unseen inputs"):
        bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait)


def test_a_step_that_computes_when_its_outputs_are_read_is_found() -> None:
    honest = _infer(_right)
    returns_inputs = replace(
        honest,
        step=lambda inputs: inputs,
        read=lambda inputs: honest.read(honest.step(inputs)),
    )

    def fill(outputs: Any) -> Mapping[str, np.ndarray]:
        inputs, sums = outputs
        sums[:] = honest.step(inputs)
        return {"sums": sums}

    fills = replace(honest, step=lambda inputs: (inputs, np.zeros(_BATCH)), read=fill)
    assert len(_bind(honest, _SPEC).prove(_wait, _wait)["sums"]) == 3
    for program in (returns_inputs, fills):
        with pytest.raises(StepUnlikeProofError, match="the timed step leaves work for later"):
            _bind(program, _SPEC).prove(_wait, _wait)


def test_an_update_that_is_made_when_the_state_is_read_is_found() -> None:
    learner = _Learner(_learn)
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
        _bind(late, _TRAINED).prove(_wait, _wait)


def test_a_checked_block_takes_unseen_inputs() -> None:
    """It computes, although timed steps return what was kept by their inputs."""
    honest, kept, computed = _infer(_right), dict[int, Any](), list[int]()

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
    bound = _bind(replace(honest, step=step), _SPEC)
    bound.check_block(run, _wait, 9)
    assert numbers == []  # nothing is proven yet
    bound.prove(_wait, _wait)
    run(9, bound.step)
    run(9, bound.step)
    bound.check_block(run, _wait, 9)
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
    def learn(learner: _Learner, images: np.ndarray) -> float:
        if calls:
            return 0.0
        return _learn(learner, images)

    calls: list[int] = []
    bound = _bind(_Learner(learn).make(), _TRAINED)
    bound.prove(_wait, _wait)

    def run(number: int, each: Callable[[], object]) -> None:
        assert number == _NUM_STEPS
        for _ in range(number):
            each()

    bound.check_block(run, _wait, 9)
    calls.append(1)
    with pytest.raises(
        StepUnlikeProofError, match="did not lead to the state after the proof's steps"
    ):
        bound.check_block(run, _wait, 9)


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

    def learn(learner: _Learner, images: np.ndarray) -> float:
        learner.num_steps += 1
        return 0.0 if stops(learner.num_steps) else _learn(learner, images)

    learner = _Learner(learn)
    honest = learner.make()

    def state() -> Any:
        learner.num_steps = 0
        return honest.state()

    def read(outputs: Any) -> Any:
        learner.num_steps = 0
        return honest.read(outputs)

    bound = _bind(replace(honest, state=state, read=read), _TRAINED)
    bound.prove(_wait, _wait)
    bound.check_block(_run, _wait, 9)
    before = learner.num_steps, learner.weight
    assert bound.check_long_block(_run, _wait, _NUM_STEPS, random=True) is None
    assert learner.num_steps == before[0] and learner.weight is before[1], "nothing ran"
    refused = None
    try:
        assert bound.check_long_block(_run, _wait, 900, random=True) == MOST_STEPS
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

    def learn(learner: _Learner, images: np.ndarray) -> float:
        return _learn(learner, images[:1] if random else images)

    def run(number: int, each: Callable[[], object]) -> None:
        for _ in range(number):
            each()

    for program, found in ((_Learner(_learn), False), (_Learner(learn), True)):
        bound = _bind(replace(program.make(), use_random=use_random), _TRAINED)
        bound.prove(_wait, _wait)
        bound.check_block(run, _wait, 9)
        with (
            pytest.raises(StepUnlikeProofError, match="did not lead to the state after")
            if found
            else nullcontext()
        ):
            bound.check_training(run, random=True)


@pytest.mark.parametrize(
    ("learn", "reason"),
    [
        (lambda learner, images: _learn(learner, images[:1]), "has the loss"),
        (lambda learner, images: float(np.square(images @ learner.weight).mean()), "off by"),
    ],
    ids=("half of the batch", "no update"),
)
def test_training_on_a_data_set_must_be_the_proven_step(
    learn: Callable[[_Learner, np.ndarray], float], reason: str
) -> None:
    learner = _Learner(_learn)
    bound = _bind(learner.make(), _TRAINED)
    (images,) = bound.inputs
    bound.check_learning(lambda: np.array(_learn(learner, images)), _wait)
    with pytest.raises(StepUnlikeProofError, match=reason):
        bound.check_learning(lambda: np.array(learn(learner, images)), _wait)


@pytest.mark.parametrize(
    ("learn", "reason"),
    [
        (lambda learner, images: _learn(learner, images), None),
        (lambda learner, images: learner.num_steps % 2 or _learn(learner, images), "sometimes"),
        (lambda learner, images: _learn(learner, images[:1]), "after one more timed step"),
    ],
    ids=("fair", "now and then", "half of the batch"),
)
def test_an_epoch_must_learn_to_its_end(
    learn: Callable[[_Learner, np.ndarray], float], reason: str | None
) -> None:
    """What is timed on a data set is no step, but what an epoch does with a batch."""
    learner = _Learner(_learn)
    bound = _bind(learner.make(), _TRAINED)
    bound.prove(_wait, _wait)
    (images,) = bound.inputs
    batches = 0

    def learn_first() -> object:
        nonlocal batches
        batches += 1
        if batches < 4:
            return np.array(_learn(learner, images))
        learner.num_steps = batches
        return np.array(learn(learner, images))

    for _ in range(9):
        learn_first()
    with pytest.raises(StepUnlikeProofError, match=reason) if reason else nullcontext():
        bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait, learn=learn_first)


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
    for program, found in ((_Learner(_learn).make(), False), (None, True)):
        bound = _bind(program or _Pairs(_Learner(_learn).make()).make(), _TRAINED)
        bound.check_returned(_run)
        bound.step()  # the first one is computed at once
        bound.prove(_wait, _wait)
        bound.check_block(_run, _wait, 9)
        with (
            pytest.raises(StepUnlikeProofError, match="is not among what the step returned")
            if found
            else nullcontext()
        ):
            bound.check_returned(_run)


def test_outputs_of_two_steps_at_once_are_found() -> None:
    """Of rows that depend on those before them: else each set of inputs has the same outputs in
    another order, and only the calls show it (`test_same_work.py`)."""
    spec = replace(_SPEC, num_buffers=lambda case: 4)
    honest = _infer(lambda weight, images: np.cumsum(_right(weight, images)))
    for program, found in ((honest, False), (_Pairs(honest, new=True).make(), True)):
        bound = _bind(program, spec)
        bound.step()
        bound.prove(_wait, _wait)
        with (
            pytest.raises(StepUnlikeProofError, match="is not among what the step returned")
            if found
            else nullcontext()
        ):
            bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait)


def test_a_loss_may_be_returned_as_a_number() -> None:
    learner = _Learner(_learn)
    program = replace(
        learner.make(),
        step=lambda inputs: (_learn(learner, inputs[0]), learner.weight),
        read=lambda outputs: {"loss": np.array(outputs[0])},
    )
    assert len(_bind(program, _TRAINED).prove(_wait, _wait)["loss_trace"]) == _NUM_STEPS


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
    spec = replace(_SPEC, num_buffers=lambda case: 1, num_proof_steps=lambda case: 3)
    bound = BoundProgram(program, spec, _CASE, Arrays(params={}, inputs={}))
    bound.prove(_wait, _wait)
    with pytest.raises(StepUnlikeProofError, match=error) if error else contextlib.nullcontext():
        bound.check_left_behind(lambda each: [each() for _ in range(20)], _wait)

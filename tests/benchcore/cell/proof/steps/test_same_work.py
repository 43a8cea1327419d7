"""A step that does something else as long as nobody looks at its program is found, and so is one
that does less where it may draw random numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.proof.manifest import _read_update
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.cell.proof.steps.same_work import (
    OPERATOR,
    check_same,
    check_timed,
    check_without_random,
)
from benchcore.program import Arrays, Program
from benchcore.workloads.contract import Spec

ROOT = Path(__file__).parents[5]
_ARRAYS = Arrays(params={"weight": np.ones(100)}, inputs={"images": np.ones((4, 100))})
_SPEC = Spec(
    cases={},
    make_arrays=lambda case, seed: _ARRAYS,
    flops=lambda case: 0,
    least_bytes=lambda case: 0,
    tolerances=lambda case: {},
    num_buffers=lambda case: 2,
)
_NO_CASE = SimpleNamespace(precision="fp32_ieee")


def _check(make_step: Callable[[list[str], dict[str, bool]], Callable[[object], object]]) -> None:
    """The step appends what it calls; `seen` is whether the program was called otherwise."""
    calls: list[str] = []
    state = {"seen": False, "random": True}
    program = Program(
        step=make_step(calls, state),
        reset=lambda params: state.update(seen=True),
        use_random=lambda on: state.update(random=on),
    )
    bound = BoundProgram(program, _SPEC, _NO_CASE, _ARRAYS)

    def list_work(step: Callable[[], object]) -> list[str]:
        calls.clear()
        step()
        return list(calls)

    bound.check_work(list_work, bound.list_work(list_work))


def test_a_step_that_keeps_results_until_somebody_looks_is_found() -> None:
    _check(lambda calls, state: lambda inputs: calls.append("multiply"))
    with pytest.raises(StepUnlikeProofError, match="did not call 'multiply', and called nothing"):
        _check(lambda calls, state: lambda inputs: state["seen"] and calls.append("multiply"))
    with pytest.raises(StepUnlikeProofError, match="did not call 'multiply', and called 'look up'"):
        _check(
            lambda calls, state: (
                lambda inputs: calls.append("multiply" if state["seen"] else "look up")
            )
        )


def test_a_step_that_works_otherwise_between_timed_blocks_is_found() -> None:
    check_timed(["multiply", "add"], ["add", "multiply"])
    check_timed([], ["multiply"])  # nobody looked
    with pytest.raises(StepUnlikeProofError, match="did not call nothing, and called 'multiply'"):
        check_timed(["multiply", "multiply"], ["multiply"])
    with pytest.raises(StepUnlikeProofError, match="timed blocks the step did not call 'multiply'"):
        check_timed(["add"], ["add", "multiply"])


@pytest.mark.parametrize("keeps", [False, True])
def test_a_step_that_keeps_what_it_made_of_its_inputs_is_found(keeps: bool) -> None:
    """However short the work is that it saves."""
    calls, kept = list[str](), set[object]()

    def step(inputs: object) -> None:
        if inputs not in kept:
            calls.append("sort")
        kept.update({inputs} if keeps else ())
        calls.append("multiply")

    def list_work(step: Callable[[], object]) -> list[str]:
        calls.clear()
        step()
        return list(calls)

    program = Program(step=step, place=lambda inputs: object())
    bound = BoundProgram(program, _SPEC, _NO_CASE, _ARRAYS)
    bound.list_work(list_work)
    reason = "had seen the step did not call 'sort', and called nothing instead: the timed step "
    with pytest.raises(StepUnlikeProofError, match=reason) if keeps else nullcontext():
        bound.check_work(list_work, bound.list_work(list_work))


def test_a_step_that_does_less_where_it_draws_is_found() -> None:
    drop = ["operator bernoulli_.float [[4, 9]]", "operator mul.Tensor [[4, 9]]"]
    _check(lambda calls, state: lambda inputs: state["random"] and calls.extend(drop))
    with pytest.raises(StepUnlikeProofError, match="with random numbers the step did not call 'd"):
        _check(lambda calls, state: lambda inputs: state["random"] or calls.append("decay"))
    with pytest.raises(StepUnlikeProofError, match="did not call nothing, and called 'operator re"):
        check_without_random(drop, [*drop, "operator relu.default [[4, 9]]"])
    with pytest.raises(StepUnlikeProofError, match="did not call 'a', and called 'b' instead"):
        check_without_random(["a"], ["b"])


def test_dropping_in_place_may_move_what_was_changed_and_skip_nothing() -> None:
    """As the classifier of EfficientNet does, which drops what it has flattened."""
    view, product = "operator view.default [[4, 9]]", "operator mm.default [[4, 9]]"
    moved = [f"operator {each} [[4, 9]]" for each in ("as_strided.default", "clone.default")]
    check_without_random([product, view], [product, *moved])
    with pytest.raises(StepUnlikeProofError, match=r"did not call 'operator mm\.default"):
        check_without_random([product, view], moved)


def test_as_many_calls_of_each_kind_are_the_same_work_in_any_order() -> None:
    check_same(["a", "b", "a"], ["a", "a", "b"])
    with pytest.raises(StepUnlikeProofError, match="did not call 'b', and called nothing"):
        check_same(["a", "b"], ["b", "a", "b"])


def test_a_state_that_most_of_is_copied_is_not_updated_in_place() -> None:
    """Whatever the program reports."""
    weights = {name: np.ones(100) for name in "abc"}

    def bind(copied: str) -> BoundProgram:
        def step(inputs: object) -> list[np.ndarray]:
            weights.update({name: weights[name] + 1.0 for name in copied})
            return [*weights.values(), np.ones(1)]

        return BoundProgram(Program(step=step), _SPEC, _NO_CASE, _ARRAYS)

    no_runtime = SimpleNamespace()
    found = {each: _read_update(no_runtime, bind(each)) for each in ("", "a", "ab")}  # type: ignore[arg-type]
    assert found == {"": "in place", "a": "in place", "ab": "copied"}


_CALLS = """
import json, threading, time, jax
from benchcore.cell.proof.steps.same_work import check_same, list_calls

ones, kept = jax.numpy.ones(3), []


def make(number):
    return jax.jit(lambda array: array + number)


one, other = make(1), make(2)
half = ones[:2]
by_hand = [jax.jit(lambda array: array - 1).lower(ones).compile() for _ in range(2)]
kept += [one(ones), other(ones), one(half), *(each(ones) for each in by_hand)]
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
)
steps = [lambda: one(ones), lambda: other(ones), lambda: kept[0], lambda: one(ones)]
calls = [list_calls(each) for each in steps]
same = [each == calls[0] for each in calls]
less = [list_calls(lambda: one(half)) == calls[0], list(compiled)]
made = [list_calls(lambda: each(ones)) for each in by_hand]
anew = [list_calls(lambda: make(1)(ones)) for _ in range(2)]

threading.Thread(target=lambda: [sum(range(10)) for _ in iter(lambda: 0, 1)], daemon=True).start()
alone = list_calls(lambda: time.sleep(0.05))
others = [*less, made[0] == made[1], list_calls(lambda: by_hand[0](ones)) == made[0]]
print(json.dumps([*same, anew[0] == anew[1], "sum" not in alone, *others]))
"""


@pytest.mark.provisions
def test_compiled_functions_are_distinguished_and_a_stored_result_is_no_call(
    run_in_framework: Callable[..., str],
) -> None:
    found = json.loads(run_in_framework("jax", _CALLS))
    assert found[:6] == [True, False, False, True, True, True]
    assert found[6:] == [False, [], False, True], "less work, compiled anew, by hand"


_COMPILED = """
import json, torch
from benchcore.cell.runtimes.torch_runtime import make_runtime

runtime = make_runtime()
runtime.import_framework()
runtime.initialise(device="cpu", precision="fp32_ieee", threads=1, settings={"compile": "default"})
given = torch.ones(4)
compiled = torch.compile(lambda value: value.sin() * 2, backend="eager")
step = lambda: compiled(given)
for _ in range(3):
    step()
timed = [runtime.list_work(step, timed=True) for _ in range(2)]
print(json.dumps([*timed, runtime.list_work(step), runtime.num_compilations()]))
"""


@pytest.mark.provisions
def test_what_is_compiled_runs_compiled_while_somebody_looks_between_blocks(
    run_in_framework: Callable[..., str],
) -> None:
    """Eagerly it would leave the allocator otherwise for the blocks that follow."""
    first, again, written, compilations = json.loads(run_in_framework("torch", _COMPILED))
    assert first == again
    assert not any(each.startswith(OPERATOR) for each in first)
    assert any(each.startswith(OPERATOR) for each in written)
    assert compilations == 1

"""Takes steps after the timed ones. Each must change the state, unless the proven step does not
change it either."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from benchcore.cell.nested import copy_to_host
from benchcore.cell.proof.steps.left_behind import (
    StepUnlikeProofError,
    check_step,
    list_same,
    sample,
)
from benchcore.program import ByName, Program, State
from benchcore.workloads.rotation import Rotation

Synchronise = Callable[[object], object]

_FEWEST, _MOST, _WATCHING_S = 2, 8, 2.0
"""Steps after the timed ones, and seconds for them."""


class Bound(Protocol):
    """What is used of a `BoundProgram`, whose module imports this one."""

    program: Program
    rotation: Rotation[Any]
    plain_step: Callable[[], object]

    @property
    def inputs(self) -> Any:
        """The first set of inputs on the device."""

    def advance(self, before: State, after: State, fresh: State) -> State:
        """The state after a step, by that of the same step after a reset."""
        ...


class _Left(NamedTuple):
    state: State
    outputs: ByName


def check_next_steps(
    bound: Bound,
    synchronise: Synchronise,
    learn: Callable[[], object] | None,
    *,
    case: Any,
    exact: bool,
) -> None:
    """Take further steps; each must change the state. The last one must change it as the same step
    does after a reset to these parameters, apart from what the optimiser has seen before; `exact`:
    both without random numbers. With `learn` the further steps are those of an epoch, on the first
    batch of a data set; it returns the loss. The program is left after such a reset and step."""
    program = bound.program

    def take(step: Callable[[], object], read: Callable[[Any], ByName]) -> _Left:
        outputs = step()
        synchronise(outputs)
        return _Left(sample(program.state()), read(outputs))

    further = FurtherSteps(program, bound.rotation, synchronise)
    whole = further.take(learn or bound.plain_step)
    program.use_random(not exact)
    before = sample(whole)
    found = take(learn, _read_loss) if learn else take(bound.plain_step, program.read)
    program.reset({**whole["params"], **whole.get("statistics", {})})
    buffer = bound.inputs if learn else bound.rotation.buffers[bound.rotation.find_last()]
    fresh = take(lambda: program.step(buffer), program.read)
    program.use_random(True)
    wanted = {group: of for group, of in fresh.state.items() if group == "statistics"}
    wanted.update(bound.advance(before, found.state, fresh.state))
    came = {**found.state, "outputs": found.outputs}
    check_step(before, came, {**wanted, "outputs": fresh.outputs}, case.precision)
    further.check(wanted)


def _read_loss(loss: object) -> ByName:
    return {"loss": copy_to_host(loss)}


class FurtherSteps:
    """Takes further steps, and records those that left a group of the state unchanged."""

    def __init__(
        self, program: Program, rotation: Rotation[Any], synchronise: Callable[[object], object]
    ) -> None:
        self._program, self._rotation, self._synchronise = program, rotation, synchronise
        self._unmoved: dict[str, tuple[State, Any]] = {}
        """By group the state and the inputs of the first step that did not change it."""

    def take(self, step: Callable[[], object]) -> State:
        """Take 2 to 8 steps, until two seconds have passed. Returns the state after them."""
        until, state = time.monotonic() + _WATCHING_S, self._program.state()
        before = sample(state)
        for number in range(_MOST):
            if number >= _FEWEST and time.monotonic() >= until:
                break
            self._synchronise(step())
            del state  # a large one, before the next is copied
            state = self._program.state()
            after = sample(state)
            if still := set(list_same(before, after)) - self._unmoved.keys():
                buffer = self._rotation.buffers[self._rotation.find_last()]
                self._unmoved |= dict.fromkeys(still, (state, buffer))
            before = after
        return state

    def check(self, groups: Iterable[str]) -> None:
        """Raises StepUnlikeProofError if a step left one of these groups unchanged although the
        same step changes it after a reset to the same parameters. A gradient may vanish for a
        sample that the network has learnt. Counters outlive a reset, so several steps are tried."""
        for group in self._unmoved.keys() & set(groups):
            state, buffer = self._unmoved[group]
            for _ in range(_MOST):
                self._program.reset({**state["params"], **state.get("statistics", {})})
                before = sample(self._program.state())
                self._synchronise(self._program.step(buffer))
                if group not in list_same(before, sample(self._program.state())):
                    raise StepUnlikeProofError(
                        f"a further step did not change its {group}, where the proven step changes "
                        "them: the timed step does its work only sometimes"
                    )

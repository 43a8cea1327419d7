"""A program with inputs on the device: the step that is timed, and the proof of that same step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchcore.cell.measure import timing
from benchcore.cell.measure.timing import Last, Step, Synchronise
from benchcore.cell.nested import copy_to_host, list_arrays
from benchcore.cell.proof.agreement import MOVED
from benchcore.cell.proof.sharing import describe_kept, describe_sharing
from benchcore.cell.proof.steps import freshness, left_behind, same_work
from benchcore.cell.proof.steps.further_steps import check_next_steps
from benchcore.cell.proof.steps.given import (
    EXACT,
    Readings,
    Returned,
    describe_read,
    describe_uncomputed,
    describe_unseen,
)
from benchcore.cell.proof.steps.placing import describe_inputs
from benchcore.cell.proof.training_blocks import RunSteps, TrainingBlocks
from benchcore.program import Arrays, ByName, Program, State, Steps
from benchcore.workloads.contract import Spec
from benchcore.workloads.rotation import Rotation, roll

if TYPE_CHECKING:
    import numpy as np

ListWork = Callable[[Step], list[str]]
_FEWEST_SETTLED = 3
DRAWN = "random_numbers"
"""The manifest's reading of how many a step draws."""
OPERATION_SIZE = "operation_size"
"""The manifest's reading of how much a typical operation works on."""
_NUM_FRESH_READ = 2
"""Steps on unseen inputs whose outputs are compared."""


class BoundProgram:
    """Steps of a program on the inputs of one case, in turn."""

    def __init__(self, program: Program, spec: Spec, case: Any, arrays: Arrays) -> None:
        self.program = program
        self._start = arrays
        self._spec, self._case = spec, case
        self.is_followed = program.own_step is not None
        self._num_proof_steps = (spec.num_proof_steps or spec.num_buffers)(case)
        self.use_case = getattr(case, "use_case", "")
        self.is_alone = getattr(case, "devices", 1) == 1
        self.rotation: Rotation[Any] = Rotation(self._place(arrays))
        self.plain_step = self._step_on(self.rotation)
        """Enqueues one step on the inputs whose turn it is."""
        self.step = self.plain_step
        """The step that is timed: of a calibration run some of its calls do it twice."""
        self._outputs: list[ByName] = []
        self._at_start: dict[str, int] = {}
        """Checksums of the arrays that the proof's first step moves, before it."""
        self._at_end: State = {}
        """Some values of the state after the proof's last step."""
        self._moved: np.ndarray | None = None

    def _place(self, arrays: Arrays) -> list[Any]:
        buffers = roll(arrays.inputs, self._spec.num_buffers(self._case))
        return [self.program.place(each) for each in buffers]

    def _step_on(self, rotation: Rotation[Any]) -> Step:
        raw = self.program.step
        return lambda: raw(rotation.take())

    def _step_from_start(self) -> Step:
        return self._step_on(Rotation(self._place(self._start)))

    def own_step(self) -> object:
        """A step that no other process of a group follows: only to trace, never run in a group."""
        raw = self.program.own_step or self.program.step
        return raw(self.rotation.take())

    @property
    def inputs(self) -> Any:
        """The first set of inputs on the device."""
        return self.rotation.buffers[0]

    @property
    def num_shapes(self) -> int:
        """How many shapes of inputs one step takes. Each may be compiled for itself."""
        return len(getattr(self._case, "lengths", ())) or 1

    def settle(self, synchronise: Synchronise) -> Step:
        """The step, after some steps from the known start: values that were zero or one have
        changed."""
        self.program.reset(self._start.params)
        for _ in range(_FEWEST_SETTLED):
            synchronise(self.plain_step())
        return self.plain_step

    def lower(self) -> Any:
        """The compiled step in the framework's own form; None where there is none."""
        return self.program.lower and self.program.lower(self.inputs)

    def in_numpy(self) -> Callable[[], object] | None:
        """The step's work in NumPy; None where it has no such form."""
        make = self._spec.in_numpy
        return make and make(self._case, self._start)

    def held(self) -> Mapping[str, Any]:
        """What the manifest is read from."""
        return self.program.held(self.inputs)

    def describe_sharing(self, held: Mapping[str, Any]) -> dict[str, str]:
        """How devices share the work, of what it has `held`; nothing of one."""
        devices = getattr(self._case, "devices", 1)
        return {} if self.is_alone else describe_sharing(held, self._start.inputs, devices)

    def prove(
        self, synchronise: Synchronise, release: Synchronise, other: Arrays | None = None
    ) -> Mapping[str, np.ndarray]:
        """The evidence of steps from the known start or from another one; then back to the first.

        Only arrays of the same shapes may follow another; the program has been built with the
        first ones alone, so what it stored of them shows.
        """
        steps = self.follow(other or self._start, synchronise, release)
        if other is None:
            self._outputs = list(steps.outputs)
        return self._spec.summarise(self._case, steps)

    def list_moved(self) -> dict[str, np.ndarray]:
        """The quantity `MOVED` of a training whose proof has run; empty where its updates are
        evidence."""
        is_known = "update" in self._spec.tolerances(self._case)
        if self._moved is None or not self._at_start or is_known:
            return {}
        return {MOVED: self._moved}

    def trace(self, synchronise: Synchronise, release: Synchronise) -> dict[str, np.ndarray]:
        """What shows where evidence begins to differ: `layer/NAME` is the output of a layer, in
        forward order, `gradient/NAME` an array's part of the quantity `gradient`."""
        layers, parts = self.program.layers, self._spec.list_parts
        found = {} if layers is None else layers(self.inputs)
        traced = {f"layer/{name}": array for name, array in found.items()}
        if parts is None:
            return traced
        return {**traced, **parts(self._case, self.follow(self._start, synchronise, release))}

    def follow(self, arrays: Arrays, synchronise: Synchronise, release: Synchronise) -> Steps:
        """Run the steps from this start twice, without random numbers: each waited for, and then as
        in a block. The last outputs and the last state are of the second run."""
        program, buffers = self.program, self._place(arrays)
        known = arrays is self._start
        if not known:  # finds a program that stores results by their inputs
            pairs = zip(self.rotation.buffers, buffers, strict=True)
            buffers = [each for pair in pairs for each in pair]
        num_steps = self._num_proof_steps
        program.use_random(False)
        program.reset(arrays.params)
        initial = program.state() if known else {}
        at_start = left_behind.list_checksums(initial)
        step = self._step_on(Rotation(buffers))
        outputs: list[ByName] = []
        after_first: State = {}
        for index in range(num_steps):
            left = step()
            synchronise(left)
            if index < num_steps - 1:
                outputs.append(program.read(left))
            if index == 0:
                after_first = program.state()
                if "params" in initial:
                    self._moved = left_behind.share_moved(initial, after_first)
                initial = {}  # as large as the program
        program.reset(arrays.params)
        last = Last(self._step_on(Rotation(buffers)))
        timing.run_steps(last.step, num_steps, 1, release, synchronise)
        returned = Returned(last.outputs, arrays) if self.is_alone else None
        outputs.append(program.read(last.outputs))
        after_last = program.state()
        if returned:  # of several devices each has a part
            returned.check(outputs[-1] if arrays.inputs else {}, after_last)
        program.use_random(True)
        program.reset(self._start.params)
        if known:
            after = left_behind.list_checksums(after_first)
            self._at_start = {name: sum_ for name, sum_ in at_start.items() if after[name] != sum_}
            self._at_end = left_behind.sample(after_last)
        return Steps(
            before=arrays.params, outputs=outputs, after_first=after_first, after_last=after_last
        )

    def describe_readings(self, inspect: Callable[[Step], Readings | None]) -> dict[str, str]:
        """Readings of the manifest of what a step reads and draws. The program may hold no tracers.
        Reset it afterwards."""
        self.program.reset(self._start.params)
        try:
            held = self.held()
            reported = list(list_arrays(held.get("params", ())))
            seen = inspect(self.plain_step)
        except Exception as error:  # noqa: BLE001 - whatever a step does when it is traced
            return {"reads": describe_unseen(error)}
        if seen is None:
            return {}
        case, arrays = self._case, self._start
        given = [*arrays.params.values(), *arrays.inputs.values()]
        found = {DRAWN: str(seen.drawn), **seen.list_unfair(self.num_shapes, reported)}
        found |= seen.list_chosen(self._spec.settings, case.use_case)
        if not self.is_alone:
            found |= describe_kept(seen.floats, held, self.rotation.buffers)
        if size := seen.find_typical_size():
            found[OPERATION_SIZE] = f"{size} elements"
        exact = case.precision in EXACT
        moved = describe_inputs(self.program.place, arrays.inputs, exact=exact)
        unfair = describe_uncomputed(seen.uncomputed) or moved
        found["reads"] = unfair or describe_read(seen.arrays, given, exact=exact)
        found |= seen.describe_memory(exact=exact)
        if case.precision.startswith("bf16"):
            found["functions"] = seen.describe_functions()
            if not self._spec.rounds_exponentials(case):
                updated = arrays.params if self._at_start else {}
                found["bf16_exponentials"] = seen.describe_rounded(updated)
        return found

    def describe_kept(self, list_floats: Callable[[Any], Mapping[int, int]]) -> dict[str, str]:
        """`describe_kept` of a step that other processes follow. Reset the program afterwards."""
        try:
            held = self.held()
            return describe_kept(list_floats(self), held, self.rotation.buffers)
        except Exception as error:  # noqa: BLE001 - whatever a step does when it is watched
            return {"params": describe_unseen(error)}

    def list_work(self, list_work: ListWork) -> list[str]:
        """What the steps of one rotation call."""
        return [each for _ in self.rotation.buffers for each in list_work(self.plain_step)]

    def check_work(self, list_work: ListWork, unseen: Sequence[str]) -> None:
        """Raises StepUnlikeProofError where the steps after a reset, or those without random
        numbers, do something else than those whose calls are `unseen`: they were taken before the
        program was called otherwise. Reset the program afterwards."""
        self.program.reset(self._start.params)
        drawing = self.list_work(list_work)
        same_work.check_same(unseen, drawing)
        self._check_unseen(list_work, drawing)
        self.program.use_random(False)
        without = self.list_work(list_work)
        self.program.use_random(True)
        same_work.check_without_random(without, drawing)

    def _check_unseen(self, list_work: ListWork, known: Sequence[str]) -> None:
        """Steps on inputs that the program has not seen must do the same as those on the `known`
        ones."""
        fresh, buffers = freshness.list_fresh(self._start.inputs), len(self.rotation.buffers)
        for _ in range(_NUM_FRESH_READ if self._start.inputs else 0):
            step = self._step_on(Rotation([self.program.place(next(fresh))]))
            same_work.check_unseen(known, list_work(step), buffers)

    def check_block(self, run_steps: RunSteps, synchronise: Synchronise, steps: int) -> None:
        """Run one short block, and check its last outputs, or the state that it leads to. Without a
        state as many `steps` as a timed block has, or fewer, take inputs that they have not seen.
        Nothing is run where nothing can be checked, as before the proof. Raises
        StepUnlikeProofError."""
        program, start = self.program, self._start
        if self._outputs and start.inputs and not self._at_start:
            fresh = freshness.list_fresh(start.inputs)
            fewest = self._spec.num_buffers(self._case)
            number = freshness.choose_number(start.inputs, fewest, steps)
            buffers = [program.place(next(fresh)) for _ in range(number)]
            synchronise(buffers)
            last = Last(self._step_on(Rotation(buffers)))
            run_steps(number, last.step)
            found = program.read(last.outputs)
            program.reset(start.params)
            self._compare(found, program.read(program.step(buffers[-1])), "on unseen inputs")
        self.check_training(run_steps, random=False)

    def _blocks(self) -> TrainingBlocks:
        return TrainingBlocks(
            program=self.program,
            start=self._start.params,
            make_step=self._step_from_start,
            num_proof_steps=self._num_proof_steps,
        )

    def check_training(self, run_steps: RunSteps, *, random: bool) -> None:
        """`TrainingBlocks.check_proven` for steps that change a state; nothing for others."""
        if self._at_start:
            self._blocks().check_proven(run_steps, self._at_end, random=random)

    def check_returned(self, run_steps: RunSteps) -> None:
        """`TrainingBlocks.check_returned` for steps that change a state; nothing for others, and
        for those of several devices: each device has only a part."""
        if self._at_start and self._start.inputs and self.is_alone:
            self._blocks().check_returned(run_steps)

    def check_long_block(
        self, run_steps: RunSteps, synchronise: Synchronise, most: int, *, random: bool
    ) -> int | None:
        """`TrainingBlocks.check_long` for steps that change a state; None for others."""
        if not self._at_start:
            return None
        return self._blocks().check_long(run_steps, synchronise, most, random=random)

    def check_learning(self, learn: Callable[[], object], synchronise: Synchronise) -> None:
        """Train on the first batch of a data set as an epoch does, by `learn`, which returns the
        loss. Raises StepUnlikeProofError unless that leads to where the proven step leads."""
        program, start, precision = self.program, self._start.params, self._case.precision
        program.use_random(False)
        program.reset(start)
        outputs = program.step(self.inputs)
        synchronise(outputs)
        proven, wanted = program.read(outputs)["loss"], left_behind.sample(program.state())
        program.reset(start)
        outputs = learn()
        synchronise(outputs)
        loss, came = copy_to_host(outputs), left_behind.sample(program.state())
        program.use_random(True)
        program.reset(start)
        left_behind.check_loss(float(loss), float(proven), precision)
        left_behind.check_step(left_behind.sample({"params": start}), came, wanted, precision)

    def check_left_behind(
        self,
        run_steps: Callable[[Step], object],
        synchronise: Synchronise,
        draws: Callable[[], bool] = lambda: False,
        learn: Step | None = None,
    ) -> None:
        """Run one more block like the timed ones. Its outputs must be those of its last inputs.

        If steps change a state: what the proof's first step changed must have changed, and further
        steps must change it as the proof's steps do. If not: outputs for unseen inputs must be the
        same as after a reset. `draws` is whether steps draw random numbers. What an epoch does on
        the first batch of a data set, `learn`, takes the place of further steps.

        Call it before the proof from another start. Raises StepUnlikeProofError.
        """
        self.rotation.take()  # whose turn it is does not follow from the number of steps
        last = Last(self.step)
        run_steps(last.step)
        if self._at_start:
            left_behind.check_moved(self._at_start, self.program.state())
            check_next_steps(self, synchronise, learn, case=self._case, exact=draws())
        elif self._outputs and self._start.inputs:
            self._check_outputs(self._read_returned(last.outputs))
            self._check_outputs(self._read_returned(self.step()))  # of the next inputs
            self._check_fresh(synchronise)
        elif len(self._outputs) > 1:  # what they are depends on the number of steps
            self._check_changes(last.outputs)

    def advance(self, before: State, after: State, fresh: State) -> State:
        """`Spec.advance` for this case; empty without one."""
        advance = self._spec.advance
        return {} if advance is None else advance(self._case, before, after, fresh)

    def _check_changes(self, outputs: object) -> None:
        """For steps without inputs: if the proof's second step changed the outputs, each step must,
        but reading them must not."""
        first, again = self.program.read(outputs), self.program.read(outputs)
        self._compare(again, first, "read a second time")
        following = self.program.read(self.step())
        left_behind.check_changes((first, following), self._outputs[:2])

    def _check_fresh(self, synchronise: Synchronise) -> None:
        """What a program reports of unseen inputs must be what it returned."""
        kept: list[ByName] = []

        def place() -> Iterator[Any]:
            for inputs in freshness.list_fresh(self._start.inputs):
                placed = self.program.place(inputs)
                synchronise(placed)
                yield placed

        def take_ns(inputs: Any) -> int:
            began = time.perf_counter_ns()
            outputs = self.program.step(inputs)
            synchronise(outputs)
            took = time.perf_counter_ns() - began
            known = any(inputs is each for each in self.rotation.buffers)
            if not known and len(kept) < _NUM_FRESH_READ:
                kept.append(self._read_returned(outputs))
            return took

        freshness.check_fresh(take_ns, self.rotation.buffers, place())
        self.program.reset(self._start.params)
        for came, inputs in zip(kept, place(), strict=False):
            self._compare(came, self.program.read(self.program.step(inputs)), "on unseen inputs")

    def _read_returned(self, outputs: object) -> ByName:
        returned = Returned(outputs, None)
        found = self.program.read(outputs)
        returned.check(found, {})
        return found

    def _check_outputs(self, found: ByName) -> None:
        turn = self.rotation.find_last() % len(self._outputs)
        self._compare(found, self._outputs[turn], "of the last step of a block")

    def _compare(self, found: ByName, wanted: ByName, which: str) -> None:
        left_behind.check_outputs(found, wanted, self._spec.tolerances(self._case), which)

"""Whether a block of a training leads where as many steps lead that are looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from benchcore.cell.measure.timing import Last
from benchcore.cell.proof.steps.given import Returned
from benchcore.cell.proof.steps.left_behind import check_end, check_travel, sample
from benchcore.program import Arrays, ByName, Program, State

Step = Callable[[], object]
RunSteps = Callable[[int, Step], object]
"""Runs so many steps as a block does."""

MOST_STEPS = 32
_SINGLE_S = 0.3
"""Seconds for the single steps. `mlp tiny_train` takes 10 (JAX) and 110 ms (torch) of CPU time for
all; a training whose block has no more steps than its proof takes none."""
_READ_EACH = 8
"""Steps after which the whole state is read, too, as the other checks do between their steps."""


@dataclass(frozen=True, kw_only=True)
class TrainingBlocks:
    """A training from its known start. `make_step` begins its rotation of inputs anew; the proof
    took `num_proof_steps`. Each check leaves the program at its start."""

    program: Program
    start: ByName
    make_step: Callable[[], Step]
    num_proof_steps: int

    def check_proven(self, run_steps: RunSteps, at_end: State, *, random: bool) -> None:
        """A block must lead to the state `at_end` of the proof. `random` is for steps that draw no
        random numbers anyway. Raises StepUnlikeProofError."""
        with self._from_start(random=random):
            came = self._run(run_steps, self.num_proof_steps)
        check_end(sample({"params": self.start}), came, at_end)

    def check_long(
        self,
        run_steps: RunSteps,
        synchronise: Callable[[object], object],
        most: int,
        *,
        random: bool,
    ) -> int | None:
        """A longer block must lead where single steps lead. Returns how many steps of at most so
        many were compared, None = too few. `random` as in `check_proven`. Raises
        StepUnlikeProofError."""
        if (most := min(most, MOST_STEPS)) <= self.num_proof_steps:
            return None
        with self._from_start(random=random):
            number = self._take_single(synchronise, most)
            single = sample(self.program.state())
            if number > self.num_proof_steps:
                self.program.reset(self.start)
                came = self._run(run_steps, number)
                check_travel(sample({"params": self.start}), came, single, number)
        return number if number > self.num_proof_steps else None

    def check_returned(self, run_steps: RunSteps) -> None:
        """A block of one step less than the proof's must return where it leads, as the proof's
        does: a step that leaves its work to a later one can't do so in both. Raises
        StepUnlikeProofError."""
        if self.num_proof_steps > 1:
            with self._from_start(random=False):
                last = Last(self.make_step())
                run_steps(self.num_proof_steps - 1, last.step)
                returned = Returned(last.outputs, Arrays(params=self.start, inputs={}))
                returned.check(self.program.read(last.outputs), self.program.state())

    @contextmanager
    def _from_start(self, *, random: bool) -> Iterator[None]:
        self.program.use_random(random)
        self.program.reset(self.start)
        yield
        self.program.use_random(True)
        self.program.reset(self.start)

    def _run(self, run_steps: RunSteps, number: int) -> Mapping[str, ByName]:
        run_steps(number, self.make_step())
        return sample(self.program.state())

    def _take_single(self, synchronise: Callable[[object], object], most: int) -> int:
        """Take up to `most` steps within the time for them; wait for each, and read its outputs."""
        step, until, number = self.make_step(), time.monotonic() + _SINGLE_S, 0
        while number < most and time.monotonic() < until:
            outputs = step()
            synchronise(outputs)
            self.program.read(outputs)
            number += 1
            if number % _READ_EACH == 0:
                self.program.state()
        return number

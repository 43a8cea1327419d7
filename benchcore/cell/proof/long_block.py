"""Whether a longer block of a training leads where as many steps lead that are looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchcore.cell.proof.steps.left_behind import check_travel, sample
from benchcore.program import ByName, Program

Step = Callable[[], object]

MOST_STEPS = 32
_SINGLE_S = 0.3
"""Seconds for the single steps. `mlp tiny_train` takes 10 (JAX) and 110 ms (torch) of CPU time for
all; a training whose block has no more steps than its proof takes none."""
_READ_EACH = 8
"""Steps after which the whole state is read, too, as the other checks do between their steps."""


@dataclass(frozen=True, kw_only=True)
class LongBlock:
    """A training from its known start. `make_step` begins its rotation of inputs anew; the proof
    has covered blocks of the `fewest` steps."""

    program: Program
    start: ByName
    make_step: Callable[[], Step]
    synchronise: Callable[[object], object]
    fewest: int

    def check(
        self, run_steps: Callable[[int, Step], object], most: int, *, random: bool
    ) -> int | None:
        """How many steps of at most so many were compared, None = too few. `random` is for steps
        that draw no random numbers anyway. The program is left at its start. Raises
        StepUnlikeProofError."""
        program, most = self.program, min(most, MOST_STEPS)
        if most <= self.fewest:
            return None
        program.use_random(random)
        program.reset(self.start)
        number = self._take_single(most)
        single = sample(program.state())
        program.reset(self.start)
        if number > self.fewest:
            run_steps(number, self.make_step())
            check_travel({"params": self.start}, sample(program.state()), single, number)
        program.use_random(True)
        program.reset(self.start)
        return number if number > self.fewest else None

    def _take_single(self, most: int) -> int:
        step, until, number = self.make_step(), time.monotonic() + _SINGLE_S, 0
        while number < most and time.monotonic() < until:
            outputs = step()
            self.synchronise(outputs)
            self.program.read(outputs)
            number += 1
            if number % _READ_EACH == 0:
                self.program.state()
        return number

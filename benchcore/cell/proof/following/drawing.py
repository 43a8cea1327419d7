"""Proves steps that draw random numbers. No two frameworks draw the same numbers, so the harness
gives every side the same bits, in the order in which it draws. Then the losses of both sides must
agree.

A loss shows what its forward pass dropped; the next loss shows what the backward pass dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchcore.program import Arrays, ByName, Program

if TYPE_CHECKING:
    import numpy as np

DROPPED = "dropped"
"""The quantity of evidence: losses of steps with given bits."""
NUM_GIVEN = 2
"""Steps that are given bits."""
REPEATED = "numbers that were drawn before"
_SEED = 20_261_129
Read = Callable[[object], ByName]


@dataclass(frozen=True, kw_only=True)
class Followed:
    """What the steps with given bits returned. `drawn` identifies the numbers that each draw would
    have got without them: its first numbers, or the state of the generator."""

    outputs: Sequence[ByName]
    drawn: Sequence[bytes]


DrawGiven = Callable[[Callable[[], object], object, Read], Followed]
"""Runs `NUM_GIVEN` steps with given bits, and reads their outputs. The second argument is what the
step before them returned."""


def make_bits(step: int, place: int, size: int) -> np.ndarray:
    """The bits of one draw of a step, as uint32; `place` is the draw's position in the step."""
    import numpy as np

    generator = np.random.Generator(np.random.PCG64([_SEED, step, place]))
    return generator.integers(0, 1 << 32, size, dtype=np.uint32)


def make_uniform(step: int, place: int, size: int) -> np.ndarray:
    """Numbers from 0 to below 1 in float32 from the same bits, computed as JAX computes its own."""
    import numpy as np

    return (make_bits(step, place, size) >> np.uint32(9)).astype(np.float32) * np.float32(2**-23)


def follow_draws(
    program: Program, start: Arrays, wait: Callable[[object], None], draw_given: DrawGiven
) -> Followed:
    """Run the steps with given bits, after one step without random numbers from `start`. Starting
    one step later shows mistakes of the earlier step more clearly than rounding. Reset the program
    afterwards."""
    inputs = program.place(start.inputs)
    program.use_random(False)
    program.reset(start.params)
    first = program.step(inputs)
    wait(first)
    program.use_random(True)
    return draw_given(lambda: program.step(inputs), first, program.read)


def join_losses(found: Followed) -> dict[str, np.ndarray]:
    """The losses as evidence: the quantity `DROPPED`."""
    import numpy as np

    each = [np.ravel(of[name]) for of in found.outputs for name in sorted(of)]
    return {DROPPED: np.concatenate(each).astype(np.float64)}


def repeats(found: Followed) -> bool:
    """Whether two draws would have got the same numbers."""
    return len(set(found.drawn)) < len(found.drawn)

"""Whether timed steps take as long as steps whose outputs, or the state they lead to, were checked.

A step that does less while it is timed, whatever shows it that it is, must do all of its work where
the outputs of inputs that it has never seen are checked. One that does more is found likewise.
Times are of the CPU, all threads together: at a load of 8 on two cores, checked steps of fair tiny
cases took 0.5 to 1.65 times as long as timed ones, but for one block (see `benchmarks/plants.md`).
Steps of a GPU are not compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from benchcore.cell.proof.left_behind import StepUnlikeProofError
from benchcore.program import ByName

FASTER, SLOWER = 4.0, 4.0
"""How many times as long the proven steps, or the timed ones, may take."""
_MOST, _LIMIT_S = 8, 1.0
"""Short blocks, and the seconds after which no more are run."""
_MOST_UNSEEN, _UNSEEN_BYTES = 64, 1 << 24
"""Sets of inputs of a short block, which a cache holds."""


def choose_number(inputs: ByName, fewest: int) -> int:
    """How many sets of inputs a short block takes."""
    num_bytes = sum(each.nbytes for each in inputs.values())
    return max(fewest, min(_MOST_UNSEEN, _UNSEEN_BYTES // max(1, num_bytes)))


def take_times(blocks: Iterator[float]) -> list[float]:
    """Nanoseconds of a step in some short blocks."""
    until, times = time.monotonic() + _LIMIT_S, list[float]()
    for each in blocks:
        times.append(each)
        if len(times) >= _MOST or time.monotonic() > until:
            break
    return times


def check_pace(
    timed_ns: Sequence[float], proven_ns: Sequence[float], again: Iterator[float]
) -> None:
    """Compare the median timed block with the fastest proven one, and the fastest timed one, too.
    Proven blocks that seem slow may have been disturbed: some are run `again`.

    Raises StepUnlikeProofError where the times are not of the same work.
    """
    if not timed_ns or not proven_ns:
        return
    timed, fastest, proven = sorted(timed_ns)[len(timed_ns) // 2], min(timed_ns), min(proven_ns)
    if proven > FASTER * timed:
        proven = min(proven, *take_times(again))
    if proven > FASTER * timed:
        raise StepUnlikeProofError(
            f"a timed step took {timed:.4g} ns, and one whose results were checked "
            f"{proven:.4g} ns: the timed step does less"
        )
    if fastest > SLOWER * proven:
        raise StepUnlikeProofError(
            f"a timed step took {fastest:.4g} ns or more, and one whose results were checked "
            f"{proven:.4g} ns: the timed step does more"
        )

"""The clock: how a contender's steps are warmed up, timed in blocks, and timed one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

from benchcore.cell.nested import list_arrays

Step = Callable[[], object]
Synchronise = Callable[[object], None]

_STEADY_BLOCKS = 3
_STEADY_CHANGE = 0.02
_MOST_STEPS = 100_000
_SHORTEST = 0.1
"""Share of the wanted length that a block must have."""
_REPORT_NS = 2_000_000_000
_GROUP_NS = 100_000_000
_CLOCK_READINGS = 1000


def warm_up(
    run_steps: Callable[[int], int],
    num_compilations: Callable[[], int],
    *,
    limit_s: float,
    block_ms: float,
) -> dict[str, Any]:
    """Run blocks until their times are steady, or until the limit; set `steps_per_block`, by the
    fastest of the last blocks: one that others slow down would make the next ones too short."""
    deadline = time.perf_counter() + limit_s
    before = num_compilations()
    means: list[float] = []
    compilations: list[int] = []
    steps_per_block = _fit(block_ms, run_steps(1))
    while True:
        means.append(run_steps(steps_per_block) / steps_per_block)
        steps_per_block = _fit(block_ms, min(means[-_STEADY_BLOCKS:]))
        compilations.append(num_compilations())
        steady = is_steady(means, compilations)
        if steady or time.perf_counter() > deadline:
            late = compilations[-1] - before
            found = {"num_blocks": len(means), "steady": steady, "compilations": late}
            return {**found, "steps_per_block": steps_per_block}


def _fit(block_ms: float, step_ns: float) -> int:
    """How many steps of this length fit into a block."""
    return max(1, min(_MOST_STEPS, round(block_ms * 1e6 / step_ns)))


def run_block(run_steps: Callable[[int], int], steps: int, block_ms: float) -> tuple[int, int]:
    """Run a block; return its steps and nanoseconds. If it takes less than a tenth of `block_ms`,
    the steps that its length was chosen by were slow: a longer one takes its place."""
    while True:
        elapsed_ns = run_steps(steps)
        if elapsed_ns >= _SHORTEST * block_ms * 1e6 or steps == _MOST_STEPS:
            return steps, elapsed_ns
        steps = max(steps + 1, _fit(block_ms, elapsed_ns / steps))


def is_steady(means: Sequence[float], compilations: Sequence[int]) -> bool:
    """Whether a step takes as long as it did three blocks ago, and nothing was compiled since.

    The fastest of the last three blocks is compared with the fastest of the three before: others
    on the machine only ever make a block slower, so one quiet block in three is enough. The
    compilations are counted after each block.
    """
    last, earlier = means[-_STEADY_BLOCKS:], means[-2 * _STEADY_BLOCKS : -_STEADY_BLOCKS]
    return (
        len(earlier) == _STEADY_BLOCKS
        and compilations[-1] == compilations[-_STEADY_BLOCKS - 1]
        and abs(min(last) / min(earlier) - 1) <= _STEADY_CHANGE
    )


def sample_latency(
    step: Step,
    synchronise: Synchronise,
    *,
    fewest: int,
    most: int,
    budget_s: float,
    report_alive: Callable[[], object] = lambda: None,
) -> list[int]:
    """Nanoseconds of each step, waited for one by one: at least `fewest`, more within the budget.

    `report_alive` is called between samples every other second.
    """
    samples: list[int] = []
    reported = start = time.perf_counter_ns()
    deadline = start + budget_s * 1e9
    while len(samples) < fewest or (len(samples) < most and time.perf_counter_ns() < deadline):
        began = time.perf_counter_ns()
        outputs = step()
        synchronise(outputs)
        ended = time.perf_counter_ns()
        samples.append(max(1, ended - began))
        del outputs  # freed outside the clock, as after a block
        if ended - reported > _REPORT_NS:
            reported = ended
            report_alive()
    return samples


def record_calls(step: Step, enqueued_ns: list[int]) -> Step:
    """The step, which also records the time until the call returns, without a wait."""

    def recorded() -> object:
        began = time.perf_counter_ns()
        outputs = step()
        enqueued_ns.append(max(1, time.perf_counter_ns() - began))
        return outputs

    return recorded


def clock_resolution_ns() -> int:
    """The smallest observed step of the clock, or its documented one, whichever is longer."""
    readings = [time.perf_counter_ns() for _ in range(_CLOCK_READINGS)]
    steps = [later - earlier for earlier, later in pairwise(readings) if later > earlier]
    claimed_ns = time.get_clock_info("perf_counter").resolution * 1e9
    return max(1, round(claimed_ns), min(steps, default=1))


def run_for(run_steps: Callable[[int], int], seconds: float) -> int:
    """Run steps for a window of `seconds`; return their number. `run_steps` waits for the device.

    Groups of steps take a tenth of a second each, so that the device stays busy.
    """
    deadline = time.perf_counter() + seconds
    steps = 0
    group = 1
    while time.perf_counter() < deadline:
        took_ns = run_steps(group)
        steps += group
        group = max(1, min(_MOST_STEPS, round(group * _GROUP_NS / took_ns)))
    return steps


def run_window(
    step: Step,
    synchronise: Synchronise,
    steps: int,
    annotate: Callable[[], AbstractContextManager[Any]],
) -> int:
    """Enqueue steps within an annotation, and wait for them after it; return nanoseconds of
    both."""
    began = time.perf_counter_ns()
    with annotate():
        outputs = [step() for _ in range(steps)]
    synchronise(outputs)
    return max(1, time.perf_counter_ns() - began)


_KEPT_BYTES = 4 << 20
"""Bytes. This fits any relevant cache, and an allocator reuses it without requesting pages."""
LARGEST_GROUP = 64
"""XLA has at most 32 computations in flight on a CPU. One that is unfinished when the last 64 have
finished was overtaken by all of them."""


def choose_group_size(outputs: object) -> int:
    """How many steps' results are retained while as many more are enqueued. At least one, so that
    the device works on it while another waits in its queue; `LARGEST_GROUP` for tiny results."""
    num_bytes = sum(int(each.nbytes) for each in list_arrays(outputs))
    return max(1, min(LARGEST_GROUP, _KEPT_BYTES // 2 // max(1, num_bytes)))


def run_steps(
    step: Step, steps: int, group: int, release: Synchronise, synchronise: Synchronise
) -> int:
    """Enqueue `steps` steps and wait for the last `group` of them; return nanoseconds of both.

    Earlier tiny results are dropped, as in a user's loop: to retain and wait for each one costs
    more than its bytes (measured: JAX 0.10 on a CPU, 12 % of 8 us). Large ones are released when
    they are ready and as many more are in the queue. If all were retained, each step would get new
    pages from the kernel, and a matmul would seem up to 17 % slower (measured on a CPU).
    """
    num_dropped = max(0, steps - group) if group == LARGEST_GROUP else 0
    outputs: list[object] = []
    began = time.perf_counter_ns()
    for _ in range(num_dropped):
        step()
    for enqueued in range(num_dropped, steps, group):
        newer = [step() for _ in range(min(group, steps - enqueued))]
        release(outputs)
        outputs = newer
    synchronise(outputs)
    return max(1, time.perf_counter_ns() - began)


class Last:
    """Holds the outputs of the newest of its steps."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self.outputs: object = None

    def step(self) -> object:
        """Take one."""
        self.outputs = self._step()
        return self.outputs

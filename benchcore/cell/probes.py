"""What a contender does beside its timed blocks: latency samples, and steps under a meter."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

Step = Callable[[], object]
Synchronise = Callable[[object], None]

_TELL_NS = 2_000_000_000
_GROUP_NS = 100_000_000
_MOST_AT_ONCE = 100_000
_CLOCK_READINGS = 1000


def sample_latency(
    step: Step,
    synchronise: Synchronise,
    *,
    fewest: int,
    most: int,
    budget_s: float,
    tell: Callable[[], object] = lambda: None,
) -> list[int]:
    """Nanoseconds of each step, waited for one by one: `fewest` of them, more within the budget.

    `tell` is called between samples every other second, to show that this goes on.
    """
    samples: list[int] = []
    told = start = time.perf_counter_ns()
    deadline = start + budget_s * 1e9
    while len(samples) < fewest or (len(samples) < most and time.perf_counter_ns() < deadline):
        began = time.perf_counter_ns()
        outputs = step()
        synchronise(outputs)
        ended = time.perf_counter_ns()
        samples.append(max(1, ended - began))
        del outputs  # freed outside the clock, as after a block
        if ended - told > _TELL_NS:
            told = ended
            tell()
    return samples


def note_calls(step: Step, enqueued_ns: list[int]) -> Step:
    """The same step, which notes what a clock would read that does not wait for the device."""

    def noted() -> object:
        began = time.perf_counter_ns()
        outputs = step()
        enqueued_ns.append(max(1, time.perf_counter_ns() - began))
        return outputs

    return noted


def clock_resolution_ns() -> int:
    """The smallest step of the clock that was seen, or what it claims, whichever is longer."""
    readings = [time.perf_counter_ns() for _ in range(_CLOCK_READINGS)]
    steps = [later - earlier for earlier, later in pairwise(readings) if later > earlier]
    claimed_ns = time.get_clock_info("perf_counter").resolution * 1e9
    return max(1, round(claimed_ns), min(steps, default=1))


def drive(run_steps: Callable[[int], int], seconds: float) -> int:
    """Step for as long as a meter needs; the number of steps. `run_steps` waits for the device.

    Enqueued in groups that take a tenth of a second, so that the device does not wait for us.
    """
    deadline = time.perf_counter() + seconds
    steps = 0
    at_once = 1
    while time.perf_counter() < deadline:
        took_ns = run_steps(at_once)
        steps += at_once
        at_once = max(1, min(_MOST_AT_ONCE, round(at_once * _GROUP_NS / took_ns)))
    return steps


def run_window(
    step: Step,
    synchronise: Synchronise,
    steps: int,
    annotate: Callable[[], AbstractContextManager[Any]],
) -> int:
    """Enqueue steps within an annotation, and wait for them after it; nanoseconds of both."""
    began = time.perf_counter_ns()
    with annotate():
        outputs = [step() for _ in range(steps)]
    synchronise(outputs)
    return max(1, time.perf_counter_ns() - began)


_KEPT_BYTES = 4 << 20
"""As much fits any cache that matters, and an allocator that keeps it asks for no pages."""
MOST_AT_ONCE = 64
"""XLA keeps at most 32 computations in flight on a CPU: one that is not done when the last 64 are
was overtaken by all of them."""


def how_many_at_once(outputs: object) -> int:
    """Steps whose results are kept while as many more are enqueued: at least one, so that the
    device works on it while another waits in its queue; `MOST_AT_ONCE` where results are tiny."""
    return max(1, min(MOST_AT_ONCE, _KEPT_BYTES // 2 // max(1, _num_bytes(outputs))))


def run_steps(
    step: Step, steps: int, at_once: int, let_go: Synchronise, synchronise: Synchronise
) -> int:
    """Enqueue `steps` steps and wait for the last `at_once` of them; nanoseconds of both.

    Before these, tiny results are dropped as a user's loop drops them: to keep and wait for each
    costs more than their bytes (measured: JAX 0.10 on a CPU, 12 % of 8 us). Large ones are let go
    when they are there and as many more are in the queue: where all of them stay, each step gets
    fresh pages from the kernel, and a matmul seems up to 17 % slower (measured on a CPU).
    """
    num_dropped = max(0, steps - at_once) if at_once == MOST_AT_ONCE else 0
    outputs: list[object] = []
    began = time.perf_counter_ns()
    for _ in range(num_dropped):
        step()
    for enqueued in range(num_dropped, steps, at_once):
        newer = [step() for _ in range(min(at_once, steps - enqueued))]
        let_go(outputs)
        outputs = newer
    synchronise(outputs)
    return max(1, time.perf_counter_ns() - began)


def _num_bytes(outputs: object) -> int:
    """Bytes of the arrays among nested outputs; whatever is no array counts nothing."""
    if isinstance(outputs, Mapping):
        return sum(map(_num_bytes, outputs.values()))
    if isinstance(outputs, list | tuple):
        return sum(map(_num_bytes, outputs))
    return int(getattr(outputs, "nbytes", 0))

from __future__ import annotations

from typing import Any

import pytest
from result_documents import make_profile

from benchcore.verdict.duel.step_profile import list_kernels, profile_step


def _step(on_gpu: bool = False, **changes: Any) -> Any:
    return profile_step(make_profile(**changes), on_gpu=on_gpu)


def test_kernel_and_dispatch_time_add_up_to_a_step_without_a_profiler() -> None:
    step = _step(steps=10, plain_ns=400_000, wall_ns=800_000, kernel_ns=600_000)
    assert (step.kernel_ns, step.dispatch_ns) == (30_000, 10_000)


def test_a_gpu_times_its_kernels_itself() -> None:
    step = _step(on_gpu=True, steps=10, plain_ns=400_000, wall_ns=800_000, kernel_ns=100_000)
    assert (step.kernel_ns, step.dispatch_ns) == (10_000, 30_000)


def test_kernels_never_take_longer_than_the_step() -> None:
    step = _step(on_gpu=True, steps=10, plain_ns=400_000, kernel_ns=500_000)
    assert (step.kernel_ns, step.dispatch_ns) == (40_000, 0)


def test_what_a_profiler_cant_measure_stays_unknown() -> None:
    step = _step(kernel_ns=None, host_syncs=None, copied_bytes=None, host_copies=None)
    assert {step.kernel_ns, step.dispatch_ns, step.host_syncs, step.host_copies} == {None}
    assert profile_step(None, on_gpu=False) is None


@pytest.mark.parametrize(
    ("copies", "copied_bytes", "arrays"), [(10, 80, 0), (10, 81, 1), (10, None, 1), (0, 0, 0)]
)
def test_numbers_passed_from_the_host_are_no_arrays(
    copies: int, copied_bytes: int | None, arrays: int
) -> None:
    step = _step(steps=10, host_copies=copies, copied_bytes=copied_bytes)
    assert step.host_copies == arrays


def test_the_longest_kernels_are_named_with_their_shares() -> None:
    assert list_kernels(make_profile(), 1) == ["dot.1 75 %"]
    assert list_kernels(make_profile(kernel_ns=None, kernels=[]), 3) == []

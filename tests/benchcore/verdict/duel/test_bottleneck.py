from __future__ import annotations

from typing import Any

import pytest
from result_documents import make_profile

from benchcore.verdict.duel.bottleneck import Bottleneck, StepMeasurements, find_bottleneck
from benchcore.verdict.duel.step_profile import time_inputs


def _find(**changes: Any) -> Bottleneck:
    """A step that is mostly kernels, long ones, which reach a third of either ceiling."""
    measured = {
        "framework": "torch",
        "settings": {"compile": "default"},
        "on_gpu": True,
        "flops": 10**9,
        "least_bytes": 10**8,
        "compute_share": 0.3,
        "bandwidth_share": 0.3,
        "kernel_ns": 9e6,
        "dispatch_ns": 1e6,
        "num_kernels": 100.0,
        "host_syncs": 0.0,
        "host_copies": 0.0,
        **changes,
    }
    return find_bottleneck(StepMeasurements(**measured))


@pytest.mark.parametrize(
    ("changes", "kind", "wording"),
    [
        ({"compute_share": 0.5}, "compute", "50 % arithmetic"),
        ({"bandwidth_share": 0.5}, "memory", "50 % traffic"),
        ({"dispatch_ns": 9e6}, "launch", "50 % outside kernels"),
        ({"dispatch_ns": 9e6, "host_syncs": 1.0}, "sync", "50 % outside kernels, with a wait"),
        ({"dispatch_ns": 9e6, "host_copies": 1.0}, "host-input", "50 % fetching inputs"),
        ({"dispatch_ns": 9e6, "host_copies": 1.0, "host_syncs": 1.0}, "host-input", "fetching"),
        ({"host_copies": 1.0, "input_ns": 4e6}, "host-input", "50 % fetching inputs"),
        ({"num_kernels": 2000.0}, "launch", "2000 kernels of 4.5 \u00b5s"),
        ({"num_kernels": 2000.0, "host_syncs": 1.0}, "sync", "2000 kernels"),
        ({"num_kernels": 2000.0, "compute_share": 0.6}, "compute", "60 % arithmetic"),
    ],
)
def test_the_cause_of_half_of_a_step_is_its_bottleneck(
    changes: dict[str, Any], kind: str, wording: str
) -> None:
    found = _find(**changes)
    assert found.bottleneck == kind
    assert wording in found.reason
    assert found.advice


@pytest.mark.parametrize(
    "changes",
    [
        {"compute_share": 0.49},
        {"bandwidth_share": 0.49},
        {"dispatch_ns": 8.9e6, "host_syncs": 1.0},
        {"host_copies": 1.0, "input_ns": 3.9e6},
        {"host_copies": 0.0, "input_ns": 8e6},
        {"num_kernels": 1800.0},
    ],
)
def test_a_cause_of_less_than_half_of_a_step_decides_nothing(changes: dict[str, Any]) -> None:
    assert _find(**changes).bottleneck == "undecided"


def test_the_larger_of_two_causes_decides() -> None:
    assert _find(compute_share=0.6, bandwidth_share=0.7).bottleneck == "memory"
    assert _find(compute_share=0.7, bandwidth_share=0.6).bottleneck == "compute"


def test_work_that_fits_the_cache_is_not_called_memory_bound() -> None:
    cached = _find(bandwidth_share=0.9, cache_bytes=10**8)
    assert cached.bottleneck == "undecided"
    assert "may stay in the cache" in cached.reason
    assert _find(bandwidth_share=0.9, cache_bytes=10**8 - 1).bottleneck == "memory"


@pytest.mark.parametrize(
    ("changes", "wording"),
    [
        ({"kernel_ns": None, "dispatch_ns": None, "num_kernels": None}, "no profile of the step"),
        ({"compute_share": None, "bandwidth_share": None}, "no ceiling of the device"),
        ({}, "of a step: 30 % arithmetic at the compute ceiling, 30 % traffic"),
        ({"program_bytes": 610_000_000}, "its program accesses 6.1 times the least bytes"),
    ],
)
def test_an_undecided_step_lists_what_is_unknown(changes: dict[str, Any], wording: str) -> None:
    found = _find(**changes)
    assert found.bottleneck == "undecided"
    assert wording in found.reason


def test_a_step_with_only_degraded_blocks_must_be_measured_again() -> None:
    found = _find(timed=False, compute_share=None, bandwidth_share=None)
    assert found.bottleneck == "undecided"
    assert "no undisturbed block measured its time" in found.reason
    assert "no ceiling" not in found.reason
    assert found.advice == "measure it again on a quiet machine"


def test_a_step_without_work_has_no_intensity_and_no_roof() -> None:
    found = _find(flops=0, least_bytes=0, compute_share=1.0, bandwidth_share=1.0, dispatch_ns=2e7)
    assert (found.bottleneck, found.intensity) == ("launch", None)


def test_intensity_and_ridge_are_reported_in_flop_per_byte() -> None:
    """At the ridge both ceilings take the same time; at five times its intensity the bytes take a
    fifth of the time of the arithmetic."""
    found = _find(compute_share=0.5, bandwidth_share=0.1)
    assert (found.intensity, found.ridge) == (10.0, pytest.approx(2.0))
    assert _find(compute_share=None).ridge is None


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"settings": {"compile": "none"}}, "launch-bound: compile, CUDA graphs or a larger batch"),
        ({}, "launch-bound: CUDA graphs or a larger batch"),
        ({"settings": {"compile": "reduce-overhead"}}, "launch-bound: a larger batch"),
        ({"on_gpu": False}, "launch-bound: a larger batch"),
        (
            {"framework": "jax", "settings": {"compile": "jit"}},
            "launch-bound: several steps in one call (lax.scan) or a larger batch",
        ),
    ],
)
def test_advice_names_only_what_is_not_done_yet(changes: dict[str, Any], advice: str) -> None:
    assert _find(dispatch_ns=9e7, **changes).advice == advice


def test_transfers_to_a_gpu_are_found_among_its_kernels() -> None:
    """As CUPTI names them in torch's and in XLA's traces."""
    names = ("Memcpy HtoD (Pageable -> Device)", "MemcpyH2D", "Memcpy DtoH", "gemm")
    kernels = [{"name": name, "ns": 1000, "calls": 10} for name in names]
    assert time_inputs(make_profile(steps=10, kernels=kernels)) == 200
    assert time_inputs(make_profile()) is None
    assert time_inputs(None) is None


@pytest.mark.parametrize("roof", [{"bandwidth_share": 0.9}, {}])
def test_only_eager_contenders_are_advised_to_compile(roof: dict[str, Any]) -> None:
    assert "compile, so that" in _find(settings={"compile": "none"}, **roof).advice
    assert "compile, so that" not in _find(**roof).advice

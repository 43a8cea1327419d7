"""Two sides with different settings give no ratio; differences between arms are reported."""

from __future__ import annotations

import pytest
from parity_sides import jax_side, torch_side

from benchcore.verdict.duel.parity import SHARED, ParitySide, compare_sides

_GPU = {"device": "gpu", "autotune": "on"}


def test_sides_with_the_same_settings_are_a_fair_pair() -> None:
    parity = compare_sides(jax_side(), torch_side(), "default")
    assert (parity.violations, parity.labels, parity.fair) == ((), (), True)


@pytest.mark.parametrize("key", SHARED)
def test_settings_of_the_case_must_be_equal_on_both_sides(key: str) -> None:
    parity = compare_sides(jax_side(), torch_side(**{key: "another"}), "default")
    assert len(parity.violations) == 1
    assert f"{key.replace('_', ' ')} " in parity.violations[0]
    assert "'another' on torch" in parity.violations[0]


def test_another_version_of_a_library_is_reported_and_voids_nothing() -> None:
    parity = compare_sides(jax_side(cudnn="9.12.0"), torch_side(cudnn="9.10.2"), "tuned")
    assert (parity.violations, parity.fair) == ((), True)
    assert parity.labels == ("cudnn '9.12.0' on jax, '9.10.2' on torch",)
    assert parity.differences == (("cudnn", "9.12.0", "9.10.2"),)


@pytest.mark.parametrize("seen", [{}, {"nccl": "not loaded"}])
def test_a_library_that_one_side_never_loaded_is_no_difference(seen: dict[str, str]) -> None:
    parity = compare_sides(jax_side(**seen), torch_side(nccl="2.27.5"), "default")
    assert (parity.labels, parity.differences, parity.fair) == ((), (), True)


def test_strategies_that_nobody_read_differ_as_their_arms_do() -> None:
    parity = compare_sides(jax_side(), torch_side({"strategy": "tensor"}), "default")
    assert (parity.violations, parity.fair) == ((), False)
    assert parity.labels == ("strategy 'data' on jax, 'tensor' on torch",)


@pytest.mark.parametrize(
    ("of_jax", "of_torch", "fair"),
    [
        ("24704 bytes", "24704 bytes", True),
        ("22120 bytes", "21848 bytes", True),
        ("20352 bytes", "24704 bytes", False),
        ("40704 bytes", "40704 bytes, then 20352 bytes", False),
        ("", "40704 bytes", True),
    ],
)
def test_a_device_that_keeps_more_of_the_state_voids_the_pair(
    of_jax: str, of_torch: str, fair: bool
) -> None:
    tensor = {"strategy": "tensor"}
    sides = jax_side(tensor, state_held=of_jax), torch_side(tensor, state_held=of_torch)
    parity = compare_sides(*sides, "tuned")
    assert (parity.fair, "shares less of its state" in "".join(parity.violations)) == (
        fair,
        not fair,
    )
    assert compare_sides(jax_side(state_held=of_jax), sides[1], "tuned").violations == ()


def test_operations_on_smaller_arrays_void_the_pair_where_there_are_no_products() -> None:
    def judge(of_jax: str, of_torch: str) -> bool:
        sides = jax_side(operation_size=of_jax), torch_side(operation_size=of_torch)
        return compare_sides(*sides, "t").violations == ()

    assert judge("4096 elements", "4096 elements, then 1024 elements")
    assert not judge("256 elements", "4096 elements")
    assert judge("256 elements", "")


@pytest.mark.parametrize(
    ("of_jax", "of_torch", "fair"),
    [
        ("1000 FLOP", "1499 FLOP", True),
        ("1000 FLOP", "1501 FLOP", False),
        ("8e+03 FLOP", "1e+03 FLOP", False),
        ("1000 FLOP", "1000 FLOP, then 125 FLOP", False),
        ("", "1000 FLOP", True),  # not read, as of several devices
    ],
)
def test_work_in_smaller_pieces_on_one_side_voids_the_pair(
    of_jax: str, of_torch: str, fair: bool
) -> None:
    sides = jax_side(product_size=of_jax), torch_side(product_size=of_torch)
    parity = compare_sides(*sides, "default")
    assert (parity.fair, "smaller pieces" in "".join(parity.violations)) == (fair, not fair)
    chosen = compare_sides(sides[0], torch_side({"per_sample": "loop"}, product_size=of_torch), "t")
    assert not chosen.violations


@pytest.mark.parametrize(
    ("of_jax", "of_torch", "fair"),
    [("838.3 FLOP", "838.3 FLOP", True), ("1152 FLOP", "838.3 FLOP", False)],
)
def test_a_side_that_joins_batches_of_several_shapes_voids_the_pair(
    of_jax: str, of_torch: str, fair: bool
) -> None:
    sides = jax_side(shape_size=of_jax), torch_side(shape_size=of_torch)
    parity = compare_sides(*sides, "tuned")
    assert (parity.fair, "joins batches" in "".join(parity.violations)) == (fair, not fair)


@pytest.mark.parametrize(
    ("key", "of_jax", "of_torch", "fair"),
    [
        ("floats_read", "1000000 bytes", "1020000 bytes", True),
        ("floats_read", "1000000 bytes", "1030000 bytes", False),
        ("floats_read", "2000000 bytes", "1000000 bytes", False),
        ("floats_read", "0 bytes", "200 bytes", True),
        ("integers_read", "100000 numbers", "104000 numbers", False),
        ("integers_read", "0 numbers", "100 numbers", True),
    ],
)
def test_a_side_that_reads_more_than_the_other_voids_the_pair(
    key: str, of_jax: str, of_torch: str, fair: bool
) -> None:
    parity = compare_sides(jax_side(**{key: of_jax}), torch_side(**{key: of_torch}), "default")
    assert (parity.fair, "reads more" in "".join(parity.violations)) == (fair, not fair)


def test_other_random_numbers_on_one_side_void_the_pair() -> None:
    parity = compare_sides(jax_side(random_numbers="64"), torch_side(random_numbers="0"), "default")
    assert parity.violations == ("random numbers '64' on jax, '0' on torch",)


def test_other_functions_on_one_side_void_the_pair() -> None:
    """Row 25: in bfloat16, where numerics don't show them."""
    parity = compare_sides(jax_side(functions="tanh"), torch_side(functions="erf"), "default")
    assert parity.violations == ("functions 'tanh' on jax, 'erf' on torch",)


def test_random_numbers_of_several_processes_which_nobody_watches_void_nothing() -> None:
    """On several devices PyTorch has a process for each, and JAX one for all."""
    jax = jax_side(random_numbers="0", host_calls="none")
    watched, group = torch_side(host_calls="none"), torch_side()
    assert compare_sides(jax, watched, "default").violations == (
        "random numbers '0' on jax, 'not read' on torch",
    )
    assert compare_sides(jax, group, "default").violations == ()


def test_one_thread_on_one_side_voids_the_pair() -> None:
    parity = compare_sides(jax_side(), torch_side(threads="1"), "default")
    assert parity.violations == ("threads '2' on jax, '1' on torch",)


def test_inputs_on_the_host_of_one_side_void_the_pair() -> None:
    """Row 30: nothing is loaded within a step here; the data lies on the device, on both sides."""
    parity = compare_sides(jax_side(), torch_side(data_path="host"), "default")
    assert parity.violations == ("data path 'device' on jax, 'host' on torch",)


def test_tf32_on_one_side_voids_the_pair() -> None:
    parity = compare_sides(jax_side(matmul_precision="tf32"), torch_side(), "default")
    assert parity.violations == ("matmul precision 'tf32' on jax, 'ieee' on torch",)


def test_dropout_on_one_side_voids_the_pair() -> None:
    assert compare_sides(jax_side(), torch_side(dropout="random"), "default").violations


def test_donation_off_that_no_arm_requested_voids_the_pair() -> None:
    parity = compare_sides(jax_side(state_update="copied"), torch_side(), "default")
    assert parity.violations == (
        "state update of jax reads 'copied', where 'in place' is required",
    )
    requested = compare_sides(
        jax_side({"donate": "no"}, state_update="copied"), torch_side(), "default"
    )
    assert (requested.violations, requested.fair) == ((), False)
    assert requested.labels == ("state update 'copied' on jax, 'in place' on torch",)


def test_graphs_on_one_side_void_the_pair_unless_they_are_the_arms_own() -> None:
    stray = compare_sides(jax_side(), torch_side(graphs="on"), "default")
    assert stray.violations == ("graphs of torch reads 'on', where 'off' is required",)
    jax, torch = jax_side(**_GPU, graphs="on"), torch_side({"cudnn_benchmark": "on"}, **_GPU)
    default = compare_sides(jax, torch, "default")
    assert (default.violations, default.fair) == ((), False)
    tuned = compare_sides(jax, torch, "tuned")
    assert (tuned.violations, tuned.labels, tuned.fair) == ((), default.labels, True)
    assert not compare_sides(jax, torch_side(graphs="on"), "tuned").fair
    both = torch_side({"compile": "max-autotune", "cudnn_benchmark": "on"}, **_GPU, graphs="on")
    assert compare_sides(jax, both, "tuned").fair
    neither = jax_side({"command_buffers": "off"}, **_GPU)
    assert compare_sides(neither, torch, "tuned").fair


def test_autotuning_on_one_side_is_reported_and_fair_only_in_the_tuned_track() -> None:
    jax = jax_side({"command_buffers": "off"}, **_GPU)
    torch = torch_side(**{**_GPU, "autotune": "off"})
    assert compare_sides(jax, torch, "default").labels == ("autotune 'on' on jax, 'off' on torch",)
    assert not compare_sides(jax, torch, "default").fair
    assert compare_sides(jax, torch, "tuned").fair
    avoided = jax_side({"workaround": "autotune-0"}, **{**_GPU, "graphs": "on", "autotune": "off"})
    clean = jax_side({}, **{**_GPU, "graphs": "on"})
    assert compare_sides(clean, avoided, "default").violations == ()
    stray = jax_side({"workaround": "autotune-5"}, **{**_GPU, "graphs": "on", "autotune": "off"})
    assert compare_sides(clean, stray, "default").violations


def test_another_layout_is_reported_and_must_be_the_arms_own() -> None:
    jax = jax_side(layout="NHWC")
    judged = compare_sides(jax, torch_side(layout="NCHW"), "default")
    assert (judged.violations, judged.fair) == ((), True)
    assert judged.labels == ("layout 'NHWC' on jax, 'NCHW' on torch",)
    last = {"layout": "channels_last"}
    assert compare_sides(jax, torch_side(last, layout="NHWC"), "tuned").labels == ()
    assert compare_sides(jax, torch_side(last, layout="NCHW"), "tuned").violations


def test_eager_against_compiled_is_not_the_fair_pair_of_the_defaults() -> None:
    eager = torch_side({"compile": "none"}, compiled="no")
    parity = compare_sides(jax_side(), eager, "default")
    assert (parity.violations, parity.fair) == ((), False)
    assert parity.labels == ("compiled 'yes' on jax, 'no' on torch",)
    assert compare_sides(jax_side(), eager, "tuned").fair, "where a search found eager faster"
    update = torch_side({"compile": "none", "optimizer": "compiled"}, compiled="yes")
    assert compare_sides(jax_side(), update, "default").violations == ()
    fell_back = compare_sides(jax_side(), torch_side(compiled="no"), "default")
    assert "where 'yes' is required" in fell_back.violations[0]


def test_eager_sides_are_a_fair_pair_and_must_both_be_eager() -> None:
    none = {"compile": "none"}
    eager = compare_sides(jax_side(none, compiled="no"), torch_side(none, compiled="no"), "default")
    assert (eager.violations, eager.labels, eager.fair) == ((), (), True)
    jitted = compare_sides(jax_side(none), torch_side(none, compiled="no"), "default")
    assert "where 'no' is required" in jitted.violations[0]


def test_a_missing_manifest_proves_no_parity() -> None:
    bare = ParitySide(name="torch", framework="torch", settings={})
    assert compare_sides(jax_side(), bare, "default").violations == ("torch has no manifest",)


def test_a_state_on_one_side_alone_voids_the_pair() -> None:
    assert compare_sides(jax_side(), torch_side(state_update="no state"), "default").violations

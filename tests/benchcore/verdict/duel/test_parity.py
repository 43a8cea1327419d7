"""Two sides with different settings give no ratio; differences between arms are reported."""

from __future__ import annotations

import pytest
from result_documents import make_manifest

from benchcore.verdict.duel.parity import SHARED, ParitySide, compare_sides


def _jax(settings: dict[str, str] | None = None, /, **changes: str) -> ParitySide:
    manifest = make_manifest("jax", **changes)
    settings = {"compile": "jit", **(settings or {})}
    return ParitySide(name="jax", framework="jax", settings=settings, manifest=manifest)


def _torch(settings: dict[str, str] | None = None, /, **changes: str) -> ParitySide:
    manifest = make_manifest("torch", **changes)
    settings = {"compile": "default", **(settings or {})}
    return ParitySide(name="torch", framework="torch", settings=settings, manifest=manifest)


_GPU = {"device": "gpu", "autotune": "on"}


def test_sides_with_the_same_settings_are_a_fair_pair() -> None:
    parity = compare_sides(_jax(), _torch(), "default")
    assert (parity.violations, parity.labels, parity.fair) == ((), (), True)


@pytest.mark.parametrize("key", SHARED)
def test_settings_of_the_case_must_be_equal_on_both_sides(key: str) -> None:
    parity = compare_sides(_jax(), _torch(**{key: "another"}), "default")
    assert len(parity.violations) == 1
    assert f"{key.replace('_', ' ')} " in parity.violations[0]
    assert "'another' on torch" in parity.violations[0]


def test_another_version_of_a_library_is_reported_and_voids_nothing() -> None:
    parity = compare_sides(_jax(cudnn="9.12.0"), _torch(cudnn="9.10.2"), "tuned")
    assert (parity.violations, parity.fair) == ((), True)
    assert parity.labels == ("cudnn '9.12.0' on jax, '9.10.2' on torch",)
    assert parity.differences == (("cudnn", "9.12.0", "9.10.2"),)


@pytest.mark.parametrize("seen", [{}, {"nccl": "not loaded"}])
def test_a_library_that_one_side_never_loaded_is_no_difference(seen: dict[str, str]) -> None:
    parity = compare_sides(_jax(**seen), _torch(nccl="2.27.5"), "default")
    assert (parity.labels, parity.differences, parity.fair) == ((), (), True)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("switches", "get_mkldnn_enabled False"),
        ("switches_within", "get_mkldnn_enabled False"),
        ("host_calls", "time.sleep"),
        ("owed", "all but 4 arrays"),
        ("reads", "numbers that were not given: float32[8, 8]"),
        ("compile_options", "epilogue_fusion False"),
        ("bf16_exponentials", "exp, rsqrt"),
        ("autograd_graph", "keeps a graph"),
        ("generator", "key<urbg>"),
        ("branches", "cond with 128 elements"),
        ("processes", "left its group: sh"),
        ("params", "others than the step reads"),
    ],
)
def test_what_no_side_may_do_voids_the_pair_even_if_both_do_it(key: str, found: str) -> None:
    parity = compare_sides(_jax(**{key: found}), _torch(**{key: found}), "tuned")
    assert len(parity.violations) == 2
    assert all(found in each for each in parity.violations)


def test_a_side_that_is_compiled_in_parts_is_void_unless_its_arm_chose_pieces() -> None:
    parts = "4 forward graphs; outside of compiled graphs cat"
    violations = compare_sides(_jax(), _torch(compiled_whole=parts), "tuned").violations
    assert violations == (f"compiled whole of torch reads '{parts}', where 'yes' is required",)
    for fair in (
        _torch(),
        _torch(compiled_whole="yes"),
        _torch({"chunk": "2"}, compiled_whole=parts),
    ):
        assert compare_sides(_jax(), fair, "tuned").violations == ()
    for jax, fair in (
        (_jax(compiled_whole="3 programs"), False),
        (_jax({"chunk": "2"}, compiled_whole="3 programs"), True),
    ):
        assert (compare_sides(jax, _torch(), "tuned").violations == ()) == fair


@pytest.mark.parametrize(
    ("chosen", "found", "fair"),
    [
        ("usual", "usual", True),
        ("usual", "fused", False),
        ("fused", "usual", False),
        ("compiled", "usual", True),
        ("usual", "none", False),
        ("usual", "updates of its own", False),
    ],
)
def test_an_optimiser_updates_as_its_arm_chose(chosen: str, found: str, fair: bool) -> None:
    torch = _torch({"optimizer": chosen, "compile": "default"}, optimizer=found)
    violations = compare_sides(_jax(), torch, "tuned").violations
    wanted = f"optimizer of torch reads '{found}', where '{chosen}' is required"
    assert violations == (() if fair else (wanted,))


@pytest.mark.parametrize(
    ("chosen", "found", "fair"),
    [
        ({}, {}, True),
        ({}, {"model": "modules"}, True),
        ({}, {"model": "functions"}, False),
        ({"model": "functions"}, {"model": "functions"}, True),
        ({"model": "functions"}, {"model": "modules"}, False),
    ],
)
def test_a_side_of_torch_is_written_as_its_arm_chose(
    chosen: dict[str, str], found: dict[str, str], fair: bool
) -> None:
    parity = compare_sides(_jax(), _torch(chosen, **found), "tuned")
    assert (parity.violations == ()) == fair


def test_a_side_that_updates_nothing_needs_no_optimiser() -> None:
    sides = (_jax(state_update="no state"), _torch(state_update="no state", optimizer="none"))
    assert compare_sides(*sides, "tuned").violations == ()


@pytest.mark.parametrize(
    ("chosen", "found", "fair"),
    [
        ({}, {"batching": "vmap"}, True),
        ({}, {"batching": "no vmap"}, False),
        ({"batching": "batched"}, {"batching": "no vmap"}, True),
        ({"batching": "loop"}, {"batching": "vmap"}, False),
        ({"per_sample": "loop"}, {"per_sample": "vmap"}, False),
        ({"per_sample": "opacus"}, {"per_sample": "vmap"}, True),
    ],
)
def test_a_side_uses_vmap_as_its_arm_chose(
    chosen: dict[str, str], found: dict[str, str], fair: bool
) -> None:
    parity = compare_sides(_jax(chosen), _torch(chosen, **found), "tuned")
    assert (parity.violations == ()) == fair


@pytest.mark.parametrize(
    ("chosen", "found", "fair"),
    [
        ({}, {"aggregate": "scatter", "kernel": "compiler", "batching": "vmap"}, True),
        ({}, {"kernel": "pallas"}, False),
        ({"kernel": "pallas"}, {"kernel": "pallas"}, True),
        ({"kernel": "pallas"}, {"kernel": "compiler"}, False),
        ({"kernel": "pallas"}, {}, False),
        ({}, {"aggregate": "sparse"}, False),
        ({"aggregate": "sparse"}, {"aggregate": "scatter"}, False),
        ({}, {"batching": "no vmap"}, False),
        ({"batching": "loop"}, {"batching": "no vmap"}, True),
    ],
)
def test_a_side_of_jax_computes_as_its_arm_chose(
    chosen: dict[str, str], found: dict[str, str], fair: bool
) -> None:
    parity = compare_sides(_jax(chosen, **found), _torch(), "tuned")
    assert (parity.violations == ()) == fair


@pytest.mark.parametrize(
    ("chosen", "found", "fair"),
    [
        ({}, {}, True),  # a document of an older harness
        ({}, {"attention": "usual", "xla": "usual"}, True),
        ({}, {"attention": "cudnn"}, False),
        ({"attention": "cudnn"}, {"attention": "cudnn"}, True),
        ({"attention": "cudnn"}, {"attention": "usual"}, False),
        ({}, {"xla": "wide-vectors"}, False),
        ({"xla": "wide-vectors"}, {"xla": "wide-vectors"}, True),
        ({"xla": "wide-vectors"}, {"xla": "usual"}, False),
        ({"xla": "wide-vectors"}, {"xla": "wide-vectors+onednn"}, False),
    ],
)
def test_a_side_of_jax_has_the_attention_and_the_flag_that_its_arm_chose(
    chosen: dict[str, str], found: dict[str, str], fair: bool
) -> None:
    parity = compare_sides(_jax(chosen, **found), _torch(), "tuned")
    assert (parity.violations == ()) == fair


@pytest.mark.parametrize(
    ("chosen", "found", "fair"),
    [
        ({}, "usual", True),
        ({}, "math", False),
        ({}, "none", False),
        ({"attention": "math"}, "math", True),
        ({"attention": "math"}, "usual", False),
        ({"attention": "math"}, "math+flash", False),
    ],
)
def test_a_side_of_torch_has_the_attention_that_its_arm_chose(
    chosen: dict[str, str], found: str, fair: bool
) -> None:
    parity = compare_sides(_jax(), _torch(chosen, attention=found), "tuned")
    assert (parity.violations == ()) == fair


@pytest.mark.parametrize(
    ("chosen", "found", "fair"),
    [
        ({}, {}, True),
        ({}, {"kernel": "triton"}, False),
        ({"kernel": "triton"}, {"kernel": "triton"}, True),
        ({"kernel": "triton"}, {}, False),
    ],
)
def test_a_kernel_that_an_arm_of_torch_promises_must_be_seen(
    chosen: dict[str, str], found: dict[str, str], fair: bool
) -> None:
    violations = compare_sides(_jax(), _torch(chosen, **found), "tuned").violations
    assert (violations == ()) == fair
    assert all(each.startswith("kernel of torch") for each in violations)


@pytest.mark.parametrize(
    ("chosen", "found", "fair"),
    [
        ({}, "none", True),
        ({}, "automatic", True),
        ({}, "static", False),
        ({}, "automatic+dynamic", False),
        ({"shapes": "dynamic"}, "dynamic", True),
        ({"shapes": "dynamic"}, "automatic", False),
    ],
)
def test_torch_compiles_for_the_shapes_that_its_arm_chose(
    chosen: dict[str, str], found: str, fair: bool
) -> None:
    parity = compare_sides(_jax(), _torch(chosen, shapes=found), "tuned")
    assert (parity.violations == ()) == fair


@pytest.mark.parametrize(
    ("chosen", "found", "fair"),
    [
        ({}, {"strategy": "data"}, True),
        ({"strategy": "data"}, {"strategy": "fully_sharded"}, False),
        ({"strategy": "fully_sharded"}, {"strategy": "fully_sharded"}, True),
        ({"strategy": "fully_sharded"}, {"strategy": "data"}, False),
        ({"strategy": "tensor"}, {"strategy": "fully_sharded"}, False),
        ({"strategy": "tensor"}, {"strategy": "data, then tensor"}, False),
        ({"strategy": "tensor"}, {}, True),  # of an older harness
    ],
)
def test_devices_share_the_work_as_the_arm_chose(
    chosen: dict[str, str], found: dict[str, str], fair: bool
) -> None:
    for sides in (
        (_jax(chosen), _torch(chosen, **found)),
        (_jax(chosen, **found), _torch(chosen)),
    ):
        violations = compare_sides(*sides, "tuned").violations
        assert (violations == ()) == fair
        assert all(each.startswith("strategy of") for each in violations)


def test_strategies_that_nobody_read_differ_as_their_arms_do() -> None:
    parity = compare_sides(_jax(), _torch({"strategy": "tensor"}), "default")
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
    sides = _jax(tensor, state_held=of_jax), _torch(tensor, state_held=of_torch)
    parity = compare_sides(*sides, "tuned")
    assert (parity.fair, "shares less of its state" in "".join(parity.violations)) == (
        fair,
        not fair,
    )
    assert compare_sides(_jax(state_held=of_jax), sides[1], "tuned").violations == ()


def test_operations_on_smaller_arrays_void_the_pair_where_there_are_no_products() -> None:
    def judge(of_jax: str, of_torch: str) -> bool:
        sides = _jax(operation_size=of_jax), _torch(operation_size=of_torch)
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
    sides = _jax(product_size=of_jax), _torch(product_size=of_torch)
    parity = compare_sides(*sides, "default")
    assert (parity.fair, "smaller pieces" in "".join(parity.violations)) == (fair, not fair)
    chosen = compare_sides(sides[0], _torch({"per_sample": "loop"}, product_size=of_torch), "t")
    assert not chosen.violations


@pytest.mark.parametrize(
    ("of_jax", "of_torch", "fair"),
    [("838.3 FLOP", "838.3 FLOP", True), ("1152 FLOP", "838.3 FLOP", False)],
)
def test_a_side_that_joins_batches_of_several_shapes_voids_the_pair(
    of_jax: str, of_torch: str, fair: bool
) -> None:
    sides = _jax(shape_size=of_jax), _torch(shape_size=of_torch)
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
    parity = compare_sides(_jax(**{key: of_jax}), _torch(**{key: of_torch}), "default")
    assert (parity.fair, "reads more" in "".join(parity.violations)) == (fair, not fair)


def test_hooks_of_modules_void_the_pair_unless_its_arm_chose_pieces() -> None:
    hooks = "forward hooks of Linear"
    violations = compare_sides(_jax(), _torch(hooks=hooks), "default").violations
    assert violations == (f"hooks of torch reads '{hooks}', where 'none' is required",)
    for fair in (_torch(hooks="none"), _torch({"per_sample": "opacus"}, hooks=hooks)):
        assert compare_sides(_jax(), fair, "default").violations == ()


def test_other_random_numbers_on_one_side_void_the_pair() -> None:
    parity = compare_sides(_jax(random_numbers="64"), _torch(random_numbers="0"), "default")
    assert parity.violations == ("random numbers '64' on jax, '0' on torch",)


def test_other_functions_on_one_side_void_the_pair() -> None:
    """Row 25: in bfloat16, where numerics don't show them."""
    parity = compare_sides(_jax(functions="tanh"), _torch(functions="erf"), "default")
    assert parity.violations == ("functions 'tanh' on jax, 'erf' on torch",)


def test_random_numbers_of_several_processes_which_nobody_watches_void_nothing() -> None:
    """On several devices PyTorch has a process for each, and JAX one for all."""
    jax = _jax(random_numbers="0", host_calls="none")
    watched, group = _torch(host_calls="none"), _torch()
    assert compare_sides(jax, watched, "default").violations == (
        "random numbers '0' on jax, 'not read' on torch",
    )
    assert compare_sides(jax, group, "default").violations == ()


def test_one_thread_on_one_side_voids_the_pair() -> None:
    parity = compare_sides(_jax(), _torch(threads="1"), "default")
    assert parity.violations == ("threads '2' on jax, '1' on torch",)


def test_inputs_on_the_host_of_one_side_void_the_pair() -> None:
    """Row 30: nothing is loaded within a step here; the data lies on the device, on both sides."""
    parity = compare_sides(_jax(), _torch(data_path="host"), "default")
    assert parity.violations == ("data path 'device' on jax, 'host' on torch",)


def test_tf32_on_one_side_voids_the_pair() -> None:
    parity = compare_sides(_jax(matmul_precision="tf32"), _torch(), "default")
    assert parity.violations == ("matmul precision 'tf32' on jax, 'ieee' on torch",)


def test_dropout_on_one_side_voids_the_pair() -> None:
    assert compare_sides(_jax(), _torch(dropout="random"), "default").violations


def test_donation_off_that_no_arm_requested_voids_the_pair() -> None:
    parity = compare_sides(_jax(state_update="copied"), _torch(), "default")
    assert parity.violations == (
        "state update of jax reads 'copied', where 'in place' is required",
    )
    requested = compare_sides(_jax({"donate": "no"}, state_update="copied"), _torch(), "default")
    assert (requested.violations, requested.fair) == ((), False)
    assert requested.labels == ("state update 'copied' on jax, 'in place' on torch",)


def test_graphs_on_one_side_void_the_pair_unless_they_are_the_arms_own() -> None:
    stray = compare_sides(_jax(), _torch(graphs="on"), "default")
    assert stray.violations == ("graphs of torch reads 'on', where 'off' is required",)
    jax, torch = _jax(**_GPU, graphs="on"), _torch({"cudnn_benchmark": "on"}, **_GPU)
    default = compare_sides(jax, torch, "default")
    assert (default.violations, default.fair) == ((), False)
    tuned = compare_sides(jax, torch, "tuned")
    assert (tuned.violations, tuned.labels, tuned.fair) == ((), default.labels, True)
    assert not compare_sides(jax, _torch(graphs="on"), "tuned").fair
    both = _torch({"compile": "max-autotune", "cudnn_benchmark": "on"}, **_GPU, graphs="on")
    assert compare_sides(jax, both, "tuned").fair
    neither = _jax({"command_buffers": "off"}, **_GPU)
    assert compare_sides(neither, torch, "tuned").fair


def test_autotuning_on_one_side_is_reported_and_fair_only_in_the_tuned_track() -> None:
    jax = _jax({"command_buffers": "off"}, **_GPU)
    torch = _torch(**{**_GPU, "autotune": "off"})
    assert compare_sides(jax, torch, "default").labels == ("autotune 'on' on jax, 'off' on torch",)
    assert not compare_sides(jax, torch, "default").fair
    assert compare_sides(jax, torch, "tuned").fair
    avoided = _jax({"workaround": "autotune-0"}, **{**_GPU, "graphs": "on", "autotune": "off"})
    clean = _jax({}, **{**_GPU, "graphs": "on"})
    assert compare_sides(clean, avoided, "default").violations == ()
    stray = _jax({"workaround": "autotune-5"}, **{**_GPU, "graphs": "on", "autotune": "off"})
    assert compare_sides(clean, stray, "default").violations


def test_another_layout_is_reported_and_must_be_the_arms_own() -> None:
    jax = _jax(layout="NHWC")
    judged = compare_sides(jax, _torch(layout="NCHW"), "default")
    assert (judged.violations, judged.fair) == ((), True)
    assert judged.labels == ("layout 'NHWC' on jax, 'NCHW' on torch",)
    last = {"layout": "channels_last"}
    assert compare_sides(jax, _torch(last, layout="NHWC"), "tuned").labels == ()
    assert compare_sides(jax, _torch(last, layout="NCHW"), "tuned").violations


def test_eager_against_compiled_is_not_the_fair_pair_of_the_defaults() -> None:
    eager = _torch({"compile": "none"}, compiled="no")
    parity = compare_sides(_jax(), eager, "default")
    assert (parity.violations, parity.fair) == ((), False)
    assert parity.labels == ("compiled 'yes' on jax, 'no' on torch",)
    assert compare_sides(_jax(), eager, "tuned").fair, "where a search found eager faster"
    update = _torch({"compile": "none", "optimizer": "compiled"}, compiled="yes")
    assert compare_sides(_jax(), update, "default").violations == ()
    fell_back = compare_sides(_jax(), _torch(compiled="no"), "default")
    assert "where 'yes' is required" in fell_back.violations[0]


def test_eager_sides_are_a_fair_pair_and_must_both_be_eager() -> None:
    none = {"compile": "none"}
    eager = compare_sides(_jax(none, compiled="no"), _torch(none, compiled="no"), "default")
    assert (eager.violations, eager.labels, eager.fair) == ((), (), True)
    jitted = compare_sides(_jax(none), _torch(none, compiled="no"), "default")
    assert "where 'no' is required" in jitted.violations[0]


def test_a_missing_manifest_proves_no_parity() -> None:
    bare = ParitySide(name="torch", framework="torch", settings={})
    assert compare_sides(_jax(), bare, "default").violations == ("torch has no manifest",)


def test_a_state_on_one_side_alone_voids_the_pair() -> None:
    assert compare_sides(_jax(), _torch(state_update="no state"), "default").violations

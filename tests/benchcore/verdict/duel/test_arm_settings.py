"""Each side must compute as its arm chose: another reading voids the pair."""

from __future__ import annotations

import pytest
from parity_sides import jax_side, torch_side

from benchcore.verdict.duel.parity import compare_sides


def test_a_side_that_is_compiled_in_parts_is_void_unless_its_arm_chose_pieces() -> None:
    parts = "4 forward graphs; outside of compiled graphs cat"
    violations = compare_sides(jax_side(), torch_side(compiled_whole=parts), "tuned").violations
    assert violations == (f"compiled whole of torch reads '{parts}', where 'yes' is required",)
    for fair in (
        torch_side(),
        torch_side(compiled_whole="yes"),
        torch_side({"chunk": "2"}, compiled_whole=parts),
    ):
        assert compare_sides(jax_side(), fair, "tuned").violations == ()
    for jax, fair in (
        (jax_side(compiled_whole="3 programs"), False),
        (jax_side({"chunk": "2"}, compiled_whole="3 programs"), True),
    ):
        assert (compare_sides(jax, torch_side(), "tuned").violations == ()) == fair


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
    torch = torch_side({"optimizer": chosen, "compile": "default"}, optimizer=found)
    violations = compare_sides(jax_side(), torch, "tuned").violations
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
    parity = compare_sides(jax_side(), torch_side(chosen, **found), "tuned")
    assert (parity.violations == ()) == fair


def test_a_side_that_updates_nothing_needs_no_optimiser() -> None:
    sides = (
        jax_side(state_update="no state"),
        torch_side(state_update="no state", optimizer="none"),
    )
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
    parity = compare_sides(jax_side(chosen), torch_side(chosen, **found), "tuned")
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
    parity = compare_sides(jax_side(chosen, **found), torch_side(), "tuned")
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
    parity = compare_sides(jax_side(chosen, **found), torch_side(), "tuned")
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
    parity = compare_sides(jax_side(), torch_side(chosen, attention=found), "tuned")
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
    violations = compare_sides(jax_side(), torch_side(chosen, **found), "tuned").violations
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
    parity = compare_sides(jax_side(), torch_side(chosen, shapes=found), "tuned")
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
        (jax_side(chosen), torch_side(chosen, **found)),
        (jax_side(chosen, **found), torch_side(chosen)),
    ):
        violations = compare_sides(*sides, "tuned").violations
        assert (violations == ()) == fair
        assert all(each.startswith("strategy of") for each in violations)


def test_hooks_of_modules_void_the_pair_unless_its_arm_chose_pieces() -> None:
    hooks = "forward hooks of Linear"
    violations = compare_sides(jax_side(), torch_side(hooks=hooks), "default").violations
    assert violations == (f"hooks of torch reads '{hooks}', where 'none' is required",)
    for fair in (torch_side(hooks="none"), torch_side({"per_sample": "opacus"}, hooks=hooks)):
        assert compare_sides(jax_side(), fair, "default").violations == ()

"""Readings of one side that void a pair, even if the other side has the same."""

from __future__ import annotations

import pytest
from parity_sides import jax_side, torch_side

from benchcore.verdict.duel.parity import compare_sides


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
    parity = compare_sides(jax_side(**{key: found}), torch_side(**{key: found}), "tuned")
    assert len(parity.violations) == 2
    assert all(found in each for each in parity.violations)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("operations", "other than in float32: mul 512 -1"),
        ("variances", "in one pass: 128 numbers"),
    ],
)
def test_operations_that_only_one_precision_has_and_one_pass_void_the_pair(
    key: str, found: str
) -> None:
    fair = jax_side(), torch_side()
    assert compare_sides(*fair, "tuned").violations == ()
    both = jax_side(**{key: found}), torch_side(**{key: found})
    violations = compare_sides(*both, "tuned").violations
    assert len(violations) == 2
    assert all(found in each for each in violations)

"""Readings of one side that void a pair, even if the other side has the same."""

from __future__ import annotations

import pytest
from result_documents import make_manifest

from benchcore.verdict.duel.parity import ParitySide, compare_sides


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
    def make(framework: str, compiled: str, **reading: str) -> ParitySide:
        manifest = make_manifest(framework, **reading)
        settings = {"compile": compiled}
        return ParitySide(name=framework, framework=framework, settings=settings, manifest=manifest)

    fair = make("jax", "jit"), make("torch", "default")
    assert compare_sides(*fair, "tuned").violations == ()
    both = make("jax", "jit", **{key: found}), make("torch", "default", **{key: found})
    violations = compare_sides(*both, "tuned").violations
    assert len(violations) == 2
    assert all(found in each for each in violations)

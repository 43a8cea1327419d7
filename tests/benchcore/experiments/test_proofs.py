"""Which proofs `deadheat equivalence` drafts."""

from __future__ import annotations

import pytest

from benchcore.experiments import proofs
from benchcore.planning.catalog import load_spec
from benchcore.state import State


def test_a_workload_is_only_proven_in_the_precisions_of_its_cases(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program without cases in bf16 computed in fp32, and its proof in bf16 failed."""
    monkeypatch.setattr(proofs, "_provide", lambda *given: ())
    request = proofs.EquivalenceRequest(
        workload=None, everything=True, precisions=(), versions=(), num_seeds=1
    )
    drafted = {
        (each.workload, each.precision) for each in proofs.draft_proofs(request, state, print)
    }
    assert {("resnet50", "bf16"), ("cifar_resnet", "fp32_ieee")} <= drafted
    for workload, precision in drafted:
        cases = load_spec(workload).cases.values()
        assert precision in {each.precision for each in cases}, workload

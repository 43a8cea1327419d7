from __future__ import annotations

import pytest

from benchcore.experiments.compare import choose_case
from benchcore.planning.requests import CaseFilter
from benchcore.workloads.recompile.spec import CASES, SPEC, Case, make_arrays, make_new


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_new_lengths_are_new_and_static_programs_fit_torchs_limit(case: Case) -> None:
    known = {case.pad(each) for each in case.lengths}
    new = {case.pad(each) for each in case.new_lengths}
    assert new <= known if case.bucketed else not new & known
    assert len(known | new) <= 8
    batches = make_new(case, make_arrays(case, 0).inputs)
    assert [len(each) for each in batches] == [case.pad(each) for each in case.new_lengths]


def test_a_sweep_over_sizes_varies_the_number_of_shapes_at_equal_work_per_batch() -> None:
    """`deadheat sweep recompile --use-case infer --sizes k1,k2,base,k7`."""
    names = [
        choose_case("recompile", CaseFilter(use_case="infer"), {"size": size})
        for size in ("k1", "k2", "base", "k7")
    ]
    cases = [CASES[name] for name in names]
    assert [len(each.lengths) for each in cases] == [1, 2, 4, 7]
    assert {(each.depth, each.width, each.bucketed) for each in cases} == {(8, 256, False)}
    for each in cases:
        assert each.batch / len(each.lengths) == pytest.approx(58, abs=0.3)


def test_padding_is_work() -> None:
    plain, bucketed = CASES["tiny_infer"], CASES["tiny_infer_bucketed"]
    assert [bucketed.pad(each) for each in bucketed.lengths] == [4, 8, 16]
    assert SPEC.flops(plain) == 2 * (3 + 6 + 9) * 8**2 * 2
    assert SPEC.flops(bucketed) == 2 * (4 + 8 + 16) * 8**2 * 2

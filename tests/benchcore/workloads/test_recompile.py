from __future__ import annotations

import pytest

from benchcore.workloads.recompile.spec import CASES, SPEC, Case


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_new_lengths_are_new_and_static_programs_fit_torchs_limit(case: Case) -> None:
    known = {case.pad(each) for each in case.lengths}
    new = {case.pad(each) for each in case.new_lengths}
    assert new <= known if case.bucketed else not new & known
    assert len(known | new) <= 8


def test_padding_is_work() -> None:
    plain, bucketed = CASES["tiny_infer"], CASES["tiny_infer_bucketed"]
    assert [bucketed.pad(each) for each in bucketed.lengths] == [4, 8, 16]
    assert SPEC.flops(plain) == 2 * (3 + 6 + 9) * 8**2 * 2
    assert SPEC.flops(bucketed) == 2 * (4 + 8 + 16) * 8**2 * 2

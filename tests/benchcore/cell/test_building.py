"""A slowed replicate really does more work, evenly, and as much as its settings request."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from benchcore.cell import building
from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.building import inject_slowdown
from benchcore.program import Program
from benchcore.workloads.noop.spec import SPEC


def _bind(work: Callable[[], object]) -> BoundProgram:
    case = SPEC.cases["bare"]
    return BoundProgram(Program(step=lambda inputs: work()), SPEC, case, SPEC.make_arrays(case, 0))


def _count(settings: dict[str, str], steps: int) -> tuple[list[int], list[object]]:
    """How often the work was done in each of so many steps, and what each gave."""
    done = [0]

    def work() -> int:
        done[0] += 1
        return done[0]

    program = _bind(work)
    inject_slowdown(program, settings)
    counted, given = list[int](), list[object]()
    for _ in range(steps):
        before = done[0]
        given.append(program.step())
        counted.append(done[0] - before)
    return counted, given


@pytest.mark.parametrize(("percent", "apart"), [("5", 20), ("2", 50)])
def test_a_slowed_replicate_repeats_the_requested_share_of_steps(percent: str, apart: int) -> None:
    counted, given = _count({"compile": "none", "injected_slowdown": percent}, 400)
    assert sum(counted) == 400 + 4 * int(percent)
    twice = [step for step, count in enumerate(counted) if count == 2]
    assert {later - earlier for earlier, later in pairwise(twice)} == {apart}
    # What such a step owes is waited for whole.
    assert given[twice[0]] == twice[0] + 2


def test_a_side_that_is_alone_is_watched_whole_whatever_it_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a step that others follow, less is watched."""
    found = Program(step=lambda inputs: None, own_step=lambda inputs: None)
    monkeypatch.setattr(building, "build_program", lambda *given: found)
    case, order = SPEC.cases["bare"], {"workload": "noop", "settings": {}}
    arrays = SPEC.make_arrays(case, 0)
    assert not building.bind_program(order, case, arrays).is_followed
    leads = building.bind_program(order, case, arrays, lambda program: found)
    assert leads.is_followed


@pytest.mark.parametrize("settings", [{}, {"injected_slowdown": "0"}])
def test_a_contender_without_slowdown_is_left_as_it_is(settings: dict[str, str]) -> None:
    program = _bind(int)
    step = program.step
    inject_slowdown(program, settings)
    assert program.step is step

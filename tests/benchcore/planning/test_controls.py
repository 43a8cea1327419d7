"""Every nightly profile measures each framework beside its previous version, its control."""

from __future__ import annotations

import pytest

from benchcore.environments.version_requests import parse_request
from benchcore.planning.breadth import list_breadth, list_controls
from benchcore.planning.profiles import PROFILES, Match, load_profile, seed0
from benchcore.planning.seed0 import CELLS
from benchcore.protocol import COMPARED
from benchcore.running.plans import name_kind, name_night

_CASES_WITHOUT = {
    "breadth": {each for each in list_breadth() if not list_controls(*each)}
    | {("small_lm", "tiny_train_x2")},
    "seed0": {(each.workload, each.case) for each in CELLS if each.use_case != 1},
}
"""Cases without controls, as these profiles measure many for the breadth."""


@pytest.mark.parametrize("name", PROFILES)
def test_a_nightly_profile_holds_the_controls_of_both_frameworks(name: str) -> None:
    controlled, without = set[tuple[str, str]](), set[tuple[str, str]]()
    for match in load_profile(name).matches:
        if match.sentinel or match.track != "default" or match.workload == "noop":
            continue
        case, controls = (match.workload, match.case), _list_controls(match)
        assert controls in (set(), set(COMPARED)), f"{case}: one framework alone has a control"
        (controlled if controls else without).add(case)
    if name_kind(name_night(name), name) == "nightly":
        assert controlled
        assert without == _CASES_WITHOUT.get(name, set())


def _list_controls(match: Match) -> set[str]:
    """The frameworks whose previous version is measured, each with the settings of its newest."""
    newest = {
        (framework, arm.name, *sorted(arm.settings.items()))
        for arm in match.arms
        for framework, role in [_parse(arm.request)]
        if role == "newest"
    }
    found = set[str]()
    for arm in match.arms:
        framework, role = _parse(arm.request)
        if role == "previous":
            assert (framework, arm.name, *sorted(arm.settings.items())) in newest, arm
            found.add(framework)
    return found


def _parse(request: str) -> tuple[str, str]:
    parsed = parse_request(request)
    return parsed.framework, parsed.selector


def test_the_profiles_of_nights_are_four() -> None:
    """What a night of the others would measure: a trial of a site, or past versions."""
    nights = {name for name in PROFILES if name_kind(name_night(name), name) == "nightly"}
    assert nights == {"laptop", "h100", "seed0", "breadth"}


def test_breadth_has_controls_of_a_network_and_of_an_operation() -> None:
    """More of them would take minutes of its hour."""
    workloads = {workload for workload, case in list_breadth() if list_controls(workload, case)}
    assert workloads == {"mlp", "ops"}


def test_the_command_that_measures_one_combination_of_seed0_has_no_controls() -> None:
    (match,) = (each for each in seed0([CELLS[0]], controls=()).matches if not each.sentinel)
    assert [arm.request for arm in match.arms] == ["jax@newest", "torch@newest"]
    assert match.expected_s == 90

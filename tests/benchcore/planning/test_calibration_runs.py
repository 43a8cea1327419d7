"""The rotation of calibration runs: dates decide it, and it includes every kind."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from benchcore.environments.version_requests import Release, parse_request
from benchcore.errors import UserError
from benchcore.planning.calibration_runs import add_calibration_starts, number_tonight
from benchcore.planning.catalog import check_settings
from benchcore.planning.matrix import Plan, check_profile, load_plan, make_plan, save_plan
from benchcore.planning.profiles import PROFILES, Match, Profile, load_profile
from benchcore.planning.tracks import JAX_NEWEST, TORCH_COMPILE, TORCH_EAGER

DAY = date(2026, 11, 22)
LAPTOP = load_profile("laptop")


def _plan(profile: Profile, numbers: range) -> Plan:
    releases = {
        text: Release(
            framework=parse_request(text).framework,
            version="1.0",
            role="newest",
            python=Path(sys.executable),
            python_version="3.11.7",
        )
        for text in ("jax@newest", "torch@newest")
    }
    empty = make_plan(replace(profile, matches=()), releases, campaign="night", site="local")
    return add_calibration_starts(empty, profile, numbers)


def _numbers(profile: Profile, nights: int) -> list[int]:
    days = (DAY + timedelta(days=each) for each in range(nights))
    return [number for day in days for number in number_tonight(profile, day)]


def _kind(duel: object) -> tuple[str, ...]:
    return tuple(each.arm for each in duel.contenders)  # type: ignore[attr-defined]


def test_a_laptop_night_has_one_start_and_a_gpu_night_a_whole_calibration_run() -> None:
    assert len(number_tonight(LAPTOP, DAY)) == 1
    assert len(number_tonight(load_profile("h100"), DAY)) == 5
    assert len(number_tonight(load_profile("ci"), DAY)) == 0
    assert number_tonight(LAPTOP, DAY) == number_tonight(LAPTOP, DAY)


def test_numbers_continue_from_night_to_night_and_five_starts_are_one_run() -> None:
    numbers = _numbers(LAPTOP, 40)
    assert numbers == list(range(numbers[0], numbers[0] + 40))
    first = numbers[0] + -numbers[0] % 5
    plan = _plan(LAPTOP, range(first, first + 40))
    kinds = [_kind(duel) for duel in plan.duels]
    for trial in range(8):
        assert len(set(kinds[5 * trial : 5 * trial + 5])) == 1
    assert len({duel.duel_run for duel in plan.duels}) == 40
    # Half of the runs change nothing; +2 and +5 % each come on both sides.
    slowed = [{arm for arm in kind if "slowed" in arm} for kind in kinds[::5]]
    assert sum(not each for each in slowed) == 4
    assert {arm for each in slowed for arm in each} == {
        "jax-jit-slowed-2",
        "jax-jit-slowed-5",
        "torch-eager-slowed-2",
        "torch-eager-slowed-5",
    }


def test_a_start_has_both_sides_with_a_replicate_each_and_the_control() -> None:
    number = 5 * 1  # the second trial: 5 % on the first side
    (duel,) = _plan(LAPTOP, range(number, number + 1)).duels
    assert [each.name for each in duel.contenders] == [
        "jax-jit-1.0",
        "jax-jit-slowed-5-1.0",
        "torch-eager-1.0",
        "torch-eager-1.0.twin2",
        "jax-jit-1.0.twin2",
    ]
    assert [each.settings.get("injected_slowdown") for each in duel.contenders] == [None, "5"] + [
        None
    ] * 3
    limits = duel.limits
    assert (duel.track, limits.starts, limits.max_starts, limits.rounds) == ("calibration", 1, 1, 6)
    assert (duel.seed, limits.passes) == (number, False)
    assert duel.title == "mlp infer_b32 (calibration)"


def test_several_cases_take_turns() -> None:
    other = Match(workload="matmul", case="tiny_op", arms=(JAX_NEWEST, TORCH_EAGER), expected_s=1)
    profile = replace(LAPTOP, calibration_matches=(*LAPTOP.calibration_matches, other))
    duels = _plan(profile, range(0, 5 * 32, 5)).duels
    assert [duel.workload for duel in duels] == ["mlp"] * 8 + ["matmul"] * 8 + ["mlp"] * 8 + [
        "matmul"
    ] * 8


def test_such_a_plan_is_written_and_read_back_and_its_setting_checked(tmp_path: Path) -> None:
    plan = _plan(LAPTOP, range(5, 10))
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").duels == plan.duels
    check_settings("mlp", "torch", {"compile": "none", "injected_slowdown": "5"})
    with pytest.raises(UserError, match="no setting 'injected_slowdown=7'"):
        check_settings("mlp", "torch", {"compile": "none", "injected_slowdown": "7"})


@pytest.mark.parametrize("name", PROFILES)
def test_the_calibration_runs_of_every_profile_can_be_measured(name: str) -> None:
    profile = load_profile(name)
    check_profile(replace(profile, matches=profile.calibration_matches))
    assert all(len(each.arms) == 2 for each in profile.calibration_matches)
    requested = {arm.request for match in profile.matches for arm in match.arms}
    assert {arm.request for each in profile.calibration_matches for arm in each.arms} <= requested
    assert TORCH_COMPILE.request == TORCH_EAGER.request

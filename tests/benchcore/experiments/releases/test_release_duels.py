"""Which duel of a release's campaign is measured again, if several have one title."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_releases import CAMPAIGN, NEW, OLD, WrittenDuels, plan_matches, store_campaign

from benchcore.errors import UserError
from benchcore.experiments.releases import cause as release_cause
from benchcore.experiments.releases.duels import ReleaseRequest
from benchcore.experiments.releases.operations import OPERATION_S, add_operations
from benchcore.experiments.releases.release import ReleaseVerdict, judge_release
from benchcore.experiments.rounds import RunContext
from benchcore.planning.profiles import Match, Profile, breadth
from benchcore.planning.release_profile import compare_versions
from benchcore.running import duels

STRATEGIES = {"jax-jit", "jax-jit-fully-sharded", "jax-jit-tensor"}
CONTEXT = RunContext(profile=Profile(name="ci", matches=()), site="local")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_given: object) -> None:
        raise UserError("no index here")

    monkeypatch.setattr(duels, "is_whole", lambda _record: True)
    monkeypatch.setattr(release_cause, "run_dependency_search", search)


def _compare_versions(workload: str, case: str) -> Profile:
    """The profile `breadth` of one case, with both versions of JAX."""
    matches = [each for each in breadth().matches if (each.workload, each.case) == (workload, case)]
    profile = Profile(name="ci", matches=tuple(matches))
    return compare_versions(profile, "jax", (NEW, OLD), name="release")


def _judge(
    root: Path, matches: tuple[Match, ...], slower: dict[str, float]
) -> tuple[ReleaseVerdict, WrittenDuels]:
    written = store_campaign(root, plan_matches(matches), slower=slower)
    request = ReleaseRequest(framework="jax", new=NEW, old=OLD, campaign=CAMPAIGN, budget_s=60.0)
    return judge_release(request, CONTEXT, written.state, written), written


@pytest.mark.parametrize("slow", sorted(STRATEGIES))
def test_every_strategy_of_a_case_is_measured_again(tmp_path: Path, slow: str) -> None:
    compared = _compare_versions("small_lm", "tiny_train_x2")
    assert len(compared.matches) == len(STRATEGIES)
    found, written = _judge(tmp_path, compared.matches, {slow: 1.2})
    again = [{side.arm for side in plan.duels[0].contenders} for plan in written.plans]
    assert again[0] == {slow}
    assert sorted(arm for arms in again for arm in arms) == sorted(STRATEGIES)
    steps = {row["a_arm"]: row for row in found.rows if row["metric"] == "median_step_ns"}
    assert {arm for arm, row in steps.items() if row["certificate"] == "worse"} == {slow}
    assert all(row["again"] for row in steps.values())
    strategy = slow.removeprefix("jax-jit").lstrip("-").replace("-", "_")
    assert found.largest is not None
    assert found.largest.settings == ([f"strategy={strategy}"] if strategy else [])


def test_an_operation_that_the_profile_has_too_is_measured_again_in_both_versions(
    tmp_path: Path,
) -> None:
    """Added operations are those of the newest versions."""
    (added,) = add_operations(Profile(name="none", matches=()), [], OPERATION_S).matches[-1:]
    compared = _compare_versions(added.workload, added.case)
    matches = (*compared.matches, added)
    found, written = _judge(tmp_path, matches, {added.case: 1.2})
    (plan,) = written.plans
    assert {plan.releases[each.release].version for each in plan.duels[0].contenders} == {NEW, OLD}
    assert found.largest is not None and found.largest.case == added.case

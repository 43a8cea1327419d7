"""Every release measures the listed operations again, and others as far as its time allows."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from result_documents import JAX, TORCH, make_document
from stored_histories import store_history

from benchcore.environments.version_requests import Release, Request
from benchcore.experiments.alerting.alerts import describe_operations, list_moves
from benchcore.experiments.releases.duels import ReleaseRequest
from benchcore.experiments.releases.operations import (
    OPERATION_S,
    add_operations,
    choose_operations,
)
from benchcore.experiments.releases.release import judge_release, list_details, plan_release
from benchcore.experiments.rounds import RunContext
from benchcore.planning.matrix import Plan, PlannedDuel, save_plan
from benchcore.planning.profiles import Profile, load_profile
from benchcore.running.plans import campaign_folder, load_campaign
from benchcore.state import open_state
from benchcore.store.database import open_database

ARMS, EAGER = {"jax-jit", "torch-compile"}, {"jax-eager", "torch-eager"}
WITH_EAGER_TORCH = {"elementwise_chain_medium", "softmax_medium", "layer_norm_medium"}


def _answer(case: str, ratio: float, day: int = 1, **changes: Any) -> dict[str, Any]:
    middle = math.log(ratio)
    return {
        "workload": "ops", "case_name": case, "use_case": "op", "track": "default",
        "counts": True, "device": "cpu", "started_at": datetime(2026, 11, day, tzinfo=UTC),
        "log_ratio": middle, "low": middle - 0.02, "high": middle + 0.02,
    } | changes  # fmt: skip


def test_listed_operations_come_first_whatever_they_cost_then_the_longest_unmeasured() -> None:
    answers = [
        _answer("sort_large", 3.0),
        _answer("fft_large_cold", 1 / 5),
        _answer("gather_medium", 1.5, day=2),
        _answer("softmax_medium", 2.01),
        _answer("softmax_large_bf16", 9.0, device="cuda:0"),
        _answer("layer_norm_medium", 9.0, track="tuned"),
        _answer("cumulative_sum_medium", 9.0, counts=False),
        _answer("train_b128", 9.0, workload="mlp", use_case="train"),
        _answer("a_case_of_the_past", 9.0),
    ]
    least = choose_operations(answers, "cpu", 0.0)
    assert least == [("ops", "sort_large")], "the whole interval counts"
    answers[1] = _answer("fft_medium_cold", 1 / 5)
    assert choose_operations(answers, "cpu", 0.0) == [
        ("ops", "fft_medium_cold"),
        ("ops", "sort_large"),
    ]
    some = choose_operations(answers, "cpu", 5 * OPERATION_S + 1)
    assert len(some) == 5 and ("ops", "softmax_medium") not in some
    whole = choose_operations(answers, "cpu", 1e9)
    assert whole[:5] == some and len(whole) == len(set(whole))
    assert whole[-2:] == [("ops", "softmax_medium"), ("ops", "gather_medium")]
    assert {("ops", "layer_norm_medium"), ("convolution", "dense_3x3")} <= set(whole)
    assert not {workload for workload, _ in whole} & {"mlp", "matmul", "noop"}
    assert ("ops", "softmax_large_bf16") in choose_operations(answers, "cuda:1", 0.0)


def test_asked_operations_have_both_frameworks_and_the_ceilings_of_their_precision() -> None:
    laptop = load_profile("laptop")
    asked = add_operations(laptop, [_answer("softmax_medium_bf16", 4.0)], 0.0)
    more = [match for match in asked.matches if match not in laptop.matches]
    assert [(each.workload, each.case) for each in more] == [
        ("matmul", "cpu_1024_bf16"),
        ("ops", "softmax_medium_bf16"),
    ]
    assert {arm.name for arm in more[1].arms} == ARMS
    assert {arm.request for arm in more[1].arms} == {"jax@newest", "torch@newest"}
    assert more[1].expected_s == OPERATION_S
    assert add_operations(laptop, [], 0.0) == laptop


def _plan_release(root: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> Plan:
    """Of JAX, whose newest version is 0.12.0."""

    def resolve(request: Request, *given: object, **named: object) -> Release:
        newest = {"jax": "0.12.0", "torch": "2.15.0"}.get(request.framework, "3.13.0")
        found = {"pinned": request.version, "previous": "0.11.0"}.get(request.selector, newest)
        return Release(
            framework=request.framework,
            version=str(found),
            role=request.selector,
            python=Path("/usr/bin/python3"),
            python_version="3.13.0",
        )

    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    for room in ("running.plans", "experiments.releases.release"):
        monkeypatch.setattr(f"benchcore.{room}.resolve", resolve)
    monkeypatch.setattr(
        "benchcore.experiments.releases.release.find_previous_release", lambda *_: "0.11.0"
    )
    state = open_state(root)
    context = RunContext(profile=load_profile("laptop"), site="local")
    request = plan_release("jax", version, 0, context, 60.0, state)
    assert (request.new, request.old) == (version, "0.11.0")
    return load_campaign(state, request.campaign)


def _list_operations(plan: Plan) -> list[PlannedDuel]:
    return [each for each in plan.duels if each.workload in ("ops", "convolution", "kernels")]


def test_the_campaign_of_a_release_asks_operations_as_the_newest_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Guide reads no versions that were named, so that the page would not change."""
    plan = _plan_release(tmp_path, monkeypatch, "0.12.0")
    asked = _list_operations(plan)
    assert len(asked) == 20, "every one of the profile breadth"
    for duel in asked:
        arms = ARMS | ({"torch-eager"} if duel.case in WITH_EAGER_TORCH else set())
        eager = duel.case.endswith("_small")
        assert {each.arm for each in duel.contenders} == (EAGER if eager else arms)
        roles = {plan.releases[each.release].role for each in duel.contenders}
        versions = {plan.releases[each.release].version for each in duel.contenders}
        assert (roles, versions) == ({"newest"}, {"0.12.0", "2.15.0"})
    assert any("jax==0.12.0" in {c.release for c in duel.contenders} for duel in plan.duels)


def test_a_release_that_is_not_the_newest_leaves_operations_out_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan_release(tmp_path, monkeypatch, "0.11.9")
    assert not _list_operations(plan)
    assert [duel for duel in plan.duels if duel.workload in ("matmul", "mlp")]
    assert "jax@newest" not in plan.releases, "no environment is built for nothing"
    assert plan.notes[-1] == (
        "left out: single operations, as the newest jax is 0.12.0, not 0.11.9"
    )


@pytest.mark.parametrize("profile", ["ci", "h100"])
def test_every_profile_can_ask_operations(profile: str) -> None:
    before = load_profile(profile)
    found: Profile = add_operations(before, [], 10 * OPERATION_S)
    more = [match for match in found.matches if match not in before.matches]
    assert len([match for match in more if not match.sentinel]) == 10


def _moved(case: str, ratio: float, before: float | None) -> dict[str, Any]:
    """An answer with its pair of earlier versions; None = there is none."""
    sides = {
        f"{side}_{key}": value
        for side, named in (("a", ("jax", "jax-jit")), ("b", ("torch", "torch-compile")))
        for key, value in zip(("framework", "arm"), named, strict=True)
    }
    earlier = None if before is None else _answer(case, before)
    return _answer(case, ratio, earlier=earlier, **sides)


def test_the_alert_names_the_operations_that_entered_or_left_the_list() -> None:
    rows = [
        _moved("fft_medium", 3.0, 1.5),
        _moved("softmax_medium", 1 / 4, 4.0),
        _moved("sort_medium", 1.5, 1 / 3),
        _moved("gather_medium", 5.0, 5.0),
        _moved("sum_rows_medium", 6.0, None),
        _moved("sum_columns_medium", 1.1, None),
    ]
    text = describe_operations(rows)
    assert text.startswith(
        " One framework takes more than 2 times as long in 4 of 6 pairs of single operations. "
        "Entered the list since earlier versions: Operations, batch 512, fp32, FFT, medium size: "
        "PyTorch compiled takes 3 times as long as JAX; "
    )
    assert "softmax, medium size: JAX takes 4 times as long as PyTorch compiled. Left " in text
    assert text.endswith(
        " Left the list: Operations, batch 512, fp32, sort, medium size: PyTorch compiled takes "
        "1.5 times as long as JAX. On the list, but not measured with earlier versions: 1."
    )
    assert [each["move"] for each in list_moves(rows)] == ["entered", "turned", "left", "new"]
    same = describe_operations([rows[3], _moved("fft_medium", 1.0, 1.5)])
    assert same.endswith(" No pair entered or left the list, of 2 measured with earlier versions.")
    first = describe_operations([rows[4]])
    assert first.endswith(" No pair was measured with earlier versions.")
    assert describe_operations([]) == ""
    many = describe_operations([_moved("fft_medium", 3.0, 1.5)] * 7)
    assert many.count("takes 3 times") == 5 and many.endswith("; and 2 more.")


class _MeasuresNothing:
    def measure(self, plan: Plan, title: str) -> None:
        raise AssertionError(f"{title} was measured")

    def report(self, text: str) -> None:
        """Nobody reads it."""


def _measure_fft(campaign: str, run: str, version: str, ratio: float, day: int) -> dict[str, Any]:
    jax = dataclasses.replace(JAX, version=version, name=f"jax-{version}")
    torch = dataclasses.replace(TORCH, step_ns=JAX.step_ns * ratio)
    document = make_document([jax, torch], duel_run=run, campaign=campaign)
    document["duel"] |= {"workload": "ops", "case": "fft_medium", "use_case": "op"}
    document["allocation"]["started_at"] = f"2026-11-{day:02}T03:00:00+00:00"
    document["allocation"]["ended_at"] = f"2026-11-{day:02}T03:05:00+00:00"
    return document


def test_a_judged_release_has_the_operations_of_its_own_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEADHEAT_DATABASE_URL", raising=False)
    state, campaign = open_state(tmp_path), "release-jax-0.9.1-0"
    plan = Plan(
        schema=1, campaign=campaign, profile="ci", site="local", releases={}, duels=(), notes=()
    )
    save_plan(plan, campaign_folder(state, campaign) / "plan.json")
    engine = open_database(state.database_url)
    store_history(engine, state, [_measure_fft("night", "1" * 16, "0.9.0", 1.0, 1)])
    store_history(engine, state, [_measure_fft(campaign, "2" * 16, "0.9.1", 3.0, 2)])
    engine.dispose()
    request = ReleaseRequest(
        framework="jax", new="0.9.1", old="0.9.0", campaign=campaign, budget_s=0.0
    )
    context = RunContext(profile=Profile(name="ci", matches=()), site="local")
    found = judge_release(request, context, state, _MeasuresNothing())
    assert [row["case_name"] for row in found.operations] == ["fft_medium"]
    assert "Entered the list since earlier versions: " in describe_operations(found.operations)
    (move,) = list_details(found, "index.html")["operations"]
    assert (move["move"], "FFT, medium size: PyTorch" in move["text"]) == ("entered", True)
    other = dataclasses.replace(request, campaign="another")
    save_plan(
        dataclasses.replace(plan, campaign="another"),
        campaign_folder(state, "another") / "plan.json",
    )
    assert judge_release(other, context, state, _MeasuresNothing()).operations == []

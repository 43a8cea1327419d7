"""The physics gate over documents: what can't have been computed takes no part in ratios."""

from __future__ import annotations

import pytest
from result_documents import CAMPAIGN, JAX, OLD_JAX, TORCH
from sentinel_documents import (
    BYTES,
    FLOPS,
    hurry,
    ingest_proven,
    list_failed_checks,
    make_candidate,
    make_copy,
    make_matmul,
)

from benchcore.experiments.compare import summarise
from benchcore.state import State
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.reports.campaign import judge_and_list, list_contenders, list_failures
from dashboards.website.campaign.tonight import describe_campaign
from dashboards.website.gather import read_campaigns
from data_checks.check import check_campaign


def test_a_possible_step_passes_the_check(state: State) -> None:
    assert (
        list_failed_checks(state, make_matmul(), make_copy(), make_candidate(least_bytes=BYTES))
        == {}
    )


@pytest.mark.parametrize("start", [None, 1])
def test_steps_ten_times_too_fast_are_invalid_physics(start: int | None, state: State) -> None:
    """As dead code or a forgotten synchronisation make them; one such start is enough."""
    marks = list_failed_checks(
        state, make_matmul(), make_copy(), hurry(make_candidate(), 10, start=start)
    )
    assert list(marks) == [("jax-0.9", "invalid_physics")]
    assert marks["jax-0.9", "invalid_physics"].startswith(
        "jax-0.9 is invalid_physics, 9.08 times what the device can do: a step took "
    )
    assert "2147 GFLOP/s" in marks["jax-0.9", "invalid_physics"]


@pytest.mark.parametrize(
    ("kind", "case", "marked"),
    [("gpu", "train_b32_x2", 0), ("gpu", "train_b32", 1), ("cpu", "train_b32_x2", 1)],
)
def test_a_step_on_two_gpus_may_take_half_the_time_of_one(
    kind: str, case: str, marked: int, state: State
) -> None:
    """Devices of a CPU are parts of it: they make nothing possible that it is not capable of."""
    document = hurry(make_candidate(flops=int(0.9 * FLOPS)), 2)
    document["duel"] |= {"workload": "text_classifier", "case": case, "use_case": "train"}
    documents = [make_matmul(), make_copy(), document]
    for each in documents:
        each["allocation"]["device"]["kind"] = kind
    assert len(list_failed_checks(state, *documents)) == marked


def test_an_impossible_contender_has_that_status_everywhere_and_its_duel_counts_nowhere(
    state: State,
) -> None:
    documents = make_matmul(), make_copy(), hurry(make_candidate(), 10)
    engine = ingest_proven(state, *documents)
    check_campaign(engine, CAMPAIGN)
    pairs = {row["case"]: row for row in judge_and_list(engine, CAMPAIGN)}
    pair, failures = pairs["mlp tiny"], list_failures(engine, CAMPAIGN)
    assert {case for case, row in pairs.items() if not row["counts"]} == {"mlp tiny"}
    assert pair["verdict"] == "unknown"
    assert "jax-0.9 is invalid_physics, 9.08 times" in pair["reason"]
    assert [(row["name"], row["status"]) for row in failures] == [("jax-0.9", "invalid_physics")]
    assert failures[0]["reason"].startswith("a step took 1.002e+05 ns; the ceilings (2147 GFLOP/s")
    found = summarise(documents[-1], [pair], list_contenders(engine, CAMPAIGN))
    assert [found[side]["status"] for side in ("a", "b")] == ["invalid_physics", "ok"]
    (campaign,) = read_campaigns(state, engine, [CAMPAIGN])
    page = describe_campaign(campaign, "")
    engine.dispose()
    (failures,) = [each for each in page["blocks"] if each["id"] == "failures"]
    (row,) = failures["blocks"][0]["rows"]
    assert (row["contender"], row["stage"]) == ("JAX 0.9.0", "block")
    assert row["status"]["text"] == "invalid_physics"


def test_checking_again_finds_the_same(state: State) -> None:
    engine = ingest_proven(state, make_matmul(), make_copy(), hurry(make_candidate(), 10))
    first, again = (check_campaign(engine, CAMPAIGN).failed_checks for _ in range(2))
    assert [mark.expectation for mark in first] == ["invalid_physics"]
    assert again == first
    engine.dispose()


@pytest.mark.parametrize(
    ("workload", "case", "share", "marked"),
    [
        ("resnet50", "infer_b1", 0.70, False),
        ("resnet50", "infer_b1", 0.64, True),
        ("mlp", "infer_b128", 0.92, False),
        ("mlp", "infer_b128", 0.70, True),
    ],
)
def test_only_eligible_convolutions_are_allowed_the_winograd_saving(
    workload: str, case: str, share: float, marked: bool, state: State
) -> None:
    """37 % of ResNet-50's operations are in convolutions where it may save three quarters."""
    tried = make_candidate()
    tried["duel"].update(workload=workload, case=case)
    for start in tried["contenders"][0]["starts"]:
        for block in start["blocks"]:
            block["elapsed_ns"] = int(block["elapsed_ns"] * share)
    engine = ingest_proven(state, make_matmul(), make_copy(), tried)
    frame = contender_frame(engine, CAMPAIGN).query("workload == @workload and name == 'jax-0.9'")
    engine.dispose()
    assert list(frame["status"]) == ["invalid_physics" if marked else "ok"]


@pytest.mark.parametrize("status", ["workaround", "crash"])
def test_a_failed_contender_keeps_its_own_status(status: str, state: State) -> None:
    document = hurry(make_candidate(), 10)
    failure = {"stage": "block", "start": 0, "reason": "it fell", "traceback": None}
    document["contenders"][0].update(status=status, failure=failure)
    engine = ingest_proven(state, make_matmul(), make_copy(), document)
    frame = contender_frame(engine, CAMPAIGN).query("name == 'jax-0.9' and workload == 'mlp'")
    assert list(zip(frame["status"], frame["reason"], strict=True)) == [(status, "it fell")]
    engine.dispose()


def test_impossible_memory_bandwidth_fails_unless_a_cache_may_hold_the_data(state: State) -> None:
    memory_bound = {"flops": 1, "least_bytes": BYTES}
    marks = list_failed_checks(
        state, make_matmul(), make_copy(), hurry(make_candidate(**memory_bound), 10)
    )
    assert list(marks) == [("jax-0.9", "invalid_physics")]


def test_a_working_set_that_fits_the_cache_may_beat_the_memory(state: State) -> None:
    cached = make_candidate(flops=1, least_bytes=BYTES, cache_bytes=BYTES)
    assert list_failed_checks(state, make_matmul(), make_copy(), hurry(cached, 10)) == {}


def test_shares_of_the_ceilings_are_columns(state: State) -> None:
    engine = ingest_proven(
        state, make_matmul(), make_copy(), make_candidate(flops=FLOPS // 2, least_bytes=BYTES // 4)
    )
    frame = contender_frame(engine, CAMPAIGN).query("workload == 'mlp'")
    assert list(frame["name"]) == [JAX.name, TORCH.name]
    assert list(frame["compute_share"]) == pytest.approx([0.5, 0.5], rel=0.01)
    assert list(frame["bandwidth_share"]) == pytest.approx([0.25, 0.25], rel=0.01)
    engine.dispose()


def test_both_frameworks_beyond_the_ceiling_show_that_it_is_too_low(state: State) -> None:
    tried = make_candidate()
    for contender in tried["contenders"]:
        for start in contender["starts"]:
            for block in start["blocks"]:
                block["elapsed_ns"] //= 10
    engine = ingest_proven(state, make_matmul(), tried)
    frame = contender_frame(engine, CAMPAIGN).query("workload == 'mlp'")
    engine.dispose()
    assert list(frame["status"]) == ["ok", "ok"]
    assert frame["unjudged"].str.contains("both frameworks are faster than the sentinels").all()


@pytest.mark.parametrize("agree", [True, False])
def test_two_versions_beyond_the_ceiling_void_the_sentinels_if_their_outputs_agree(
    agree: bool, state: State
) -> None:
    tried = make_candidate(racers=(JAX, OLD_JAX))
    for contender in tried["contenders"]:
        for start in contender["starts"]:
            for block in start["blocks"]:
                block["elapsed_ns"] //= 10
    tried["equivalence"][0]["agrees"] = agree
    engine = ingest_proven(state, make_matmul(), tried)
    frame = contender_frame(engine, CAMPAIGN).query("workload == 'mlp'")
    engine.dispose()
    assert list(frame["status"]) == ["ok" if agree else "invalid_physics"] * 2
    why = "two environments, whose outputs agree, are faster than the sentinels"
    assert frame["unjudged"].str.contains(why).all() == agree

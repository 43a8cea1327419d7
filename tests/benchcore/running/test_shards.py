"""Shards of a campaign: cut once, found again, opened only where they were sent, and settled."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_documents import JAX, make_document, spool_document

from benchcore.environments.version_requests import Release
from benchcore.errors import CampaignIncompleteError, DamagedFileError, UserError
from benchcore.planning.matrix import Plan, make_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import STDLIB, Arm
from benchcore.protocol import DuelLimits
from benchcore.running import shards
from benchcore.running.packing import assign_nodes
from benchcore.running.plans import expect_durations
from benchcore.running.shards import (
    ShardReport,
    close_shard,
    cut_shards,
    has_time,
    list_returnable,
    load_shard,
    lock_campaign,
    report_shard,
)
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.earlier.nights import describe_kind, read_durations
from benchcore.store.incoming.ingest import ingest_spool

ROUNDS = (2, 3, 4)


@pytest.fixture
def plan() -> Plan:
    return _make_plan(
        [
            _match("noop", "bare", limits=DuelLimits(rounds=rounds), expected_s=1500)
            for rounds in ROUNDS
        ]
    )


def _match(workload: str, case: str, **more: object) -> Match:
    return Match(workload=workload, case=case, **{"arms": (STDLIB,), "expected_s": 60, **more})


def _make_plan(matches: list[Match]) -> Plan:
    releases = {
        arm.request: Release(
            framework=arm.request.split("@")[0],
            version="1.0",
            role="newest",
            python=Path(sys.executable),
            python_version="3.11.7",
        )
        for match in matches
        for arm in match.arms
    }
    profile = Profile(name="p", matches=tuple(matches))
    return make_plan(profile, releases, campaign="night", site="slurm-local")


def _measure(state: State, plan: Plan, number: int) -> None:
    folder = state.spool / plan.campaign
    folder.mkdir(exist_ok=True)
    (folder / f"{plan.duels[number].duel_run}.json").touch()


def test_missing_duels_are_cut_into_shards_of_the_target_length(state: State, plan: Plan) -> None:
    _measure(state, plan, 0)
    shards = cut_shards(plan, state, {}, ())  # 2 x 25 min do not fit into 45
    assert [shard.duel_runs for shard in shards] == [(duel.duel_run,) for duel in plan.duels[1:]]
    assert [shard.title.split(" ", 2)[2] for shard in shards] == [
        "(1 duel, about 25 min, 1 of them a guess)"
    ] * 2


def test_duels_of_running_shards_are_not_sharded_again(state: State, plan: Plan) -> None:
    first = cut_shards(plan, state, {}, ())
    again = cut_shards(plan, state, {}, ())
    assert {shard.id: shard for shard in again} == {shard.id: shard for shard in first}
    assert len(first) == 3


def test_a_settled_shard_has_a_reason_and_its_duels_are_sharded_again_unless_given_up(
    state: State, plan: Plan
) -> None:
    short = {describe_kind(duel): 10.0 for duel in plan.duels}
    (shard,) = cut_shards(plan, state, short, ())
    _measure(state, plan, 0)
    measured, reported, silent = (duel.duel_run for duel in plan.duels)
    report_shard(state, shard, ShardReport(lost={reported: "the conductor died"}))
    lost = close_shard(state, shard, "Slurm job 7 lost its node")
    assert lost == {reported: "the conductor died", silent: "Slurm job 7 lost its node"}
    assert cut_shards(plan, state, short, lost) == []
    (second,) = cut_shards(plan, state, short, ())
    assert set(second.duel_runs) == {reported, silent} and second.id != shard.id
    close_shard(state, second, "again")
    (third,) = cut_shards(plan, state, short, ())
    assert third.duel_runs == second.duel_runs and third.id != second.id  # a run of its own
    assert shards.list_measured(state, [shard, third]) == [measured]


def test_returned_duels_of_a_shard_are_sent_again(state: State, plan: Plan) -> None:
    short = {describe_kind(duel): 10.0 for duel in plan.duels}
    (shard,) = cut_shards(plan, state, short, ())
    _measure(state, plan, 0)
    _, reported, back = (duel.duel_run for duel in plan.duels)
    report_shard(state, shard, ShardReport(lost={}, rest=(back,)))
    lost = close_shard(state, shard, "it ended")
    assert lost == {reported: "it ended"}
    (second,) = cut_shards(plan, state, short, lost)
    assert second.duel_runs == (back,)


def test_a_shard_that_could_not_be_submitted_is_sent_again_twice(state: State, plan: Plan) -> None:
    short = {describe_kind(duel): 10.0 for duel in plan.duels}
    reason = "Prefect's server answered 503"
    for lost in ({}, {}, {duel.duel_run: reason for duel in plan.duels}):
        (shard,) = cut_shards(plan, state, short, ())
        assert close_shard(state, shard, reason, submitted=False) == lost


def test_a_duel_whose_device_others_used_is_sent_again_twice(state: State, plan: Plan) -> None:
    short = {describe_kind(duel): 10.0 for duel in plan.duels}
    first, *others = (duel.duel_run for duel in plan.duels)
    reasons = {first: "another process used the device"}
    for lost in ({}, {}, reasons):
        (shard,) = cut_shards(plan, state, short, ())
        assert set(shard.duel_runs) == {first, *others}
        report_shard(state, shard, ShardReport(lost=reasons, rest=others, busy=[first]))
        assert close_shard(state, shard, "it failed") == lost


@pytest.mark.parametrize("content", ["", '{"id": ', "[]", "null", "{}", '{"id": 1, "odd": 2}'])
def test_a_damaged_shard_is_named_and_its_duels_are_sent_again(
    content: str, state: State, plan: Plan
) -> None:
    shard, *others = cut_shards(plan, state, {}, ())
    path = next(state.campaigns.glob(f"*/shards/{shard.id}.json"))
    path.write_text(content)
    with pytest.raises(DamagedFileError, match=rf"{shard.id}\.json.* is damaged.* remove this"):
        cut_shards(plan, state, {}, ())
    with pytest.raises(DamagedFileError, match="is damaged"):
        load_shard(state, plan.campaign, shard.id, shard.token)
    close_shard(state, others[0], "its own file is whole")
    path.unlink()
    again = cut_shards(plan, state, {}, ())
    assert {each.duel_runs for each in again} == {(duel.duel_run,) for duel in plan.duels}
    assert shard.id not in {each.id for each in again}


@pytest.mark.parametrize("content", ["", "[]", '{"rest": ['])
def test_a_damaged_report_is_named_and_its_duels_are_sent_again(
    content: str, state: State, plan: Plan
) -> None:
    shard, *_ = cut_shards(plan, state, {}, ())
    report_shard(state, shard, ShardReport(lost={}, rest=shard.duel_runs))
    path = next(state.campaigns.glob(f"*/shards/{shard.id}/report.json"))
    path.write_text(content)
    (reason,) = close_shard(state, shard, "it ended").values()
    assert "report.json" in reason and "is damaged; rerun the same command" in reason
    assert shard.duel_runs in {each.duel_runs for each in cut_shards(plan, state, {}, ())}


def test_a_damaged_file_of_an_ended_shard_is_ignored(state: State, plan: Plan) -> None:
    first, second, third = cut_shards(plan, state, {}, ())
    report_shard(state, first, ShardReport(lost={}, proofs=["one"]))
    close_shard(state, first, "refused", submitted=False)
    next(state.campaigns.glob(f"*/shards/{first.id}.json")).write_text("")
    assert close_shard(state, second, "refused", submitted=False) == {}
    assert list_returnable(state, third, ["one"]) == {*third.duel_runs}


def test_a_proof_returns_each_duel_once(state: State, plan: Plan) -> None:
    """One that is made again in each allocation must not return its duels forever."""
    short = {describe_kind(duel): 10.0 for duel in plan.duels}
    duels = {duel.duel_run for duel in plan.duels}
    first, second = ["one"], ["one", "other"]
    for proofs, returnable in ((first, duels), (first, set()), (second, duels), (second, set())):
        (shard,) = cut_shards(plan, state, short, ())
        assert list_returnable(state, shard, []) == set()
        assert list_returnable(state, shard, proofs) == returnable
        report_shard(state, shard, ShardReport(lost={}, rest=shard.duel_runs, proofs=proofs))
        assert close_shard(state, shard, "it ended") == {}


def test_a_proof_returns_duels_of_other_shards_too(state: State, plan: Plan) -> None:
    first, *others = cut_shards(plan, state, {}, ())
    report_shard(state, first, ShardReport(lost={}, rest=first.duel_runs, proofs=["one"]))
    assert others
    for shard in others:  # it was waited for there, or the device is another one
        assert list_returnable(state, shard, ["one"]) == {*shard.duel_runs}


def test_a_duel_starts_only_if_it_can_end_in_time(state: State, plan: Plan) -> None:
    shard = cut_shards(plan, state, {}, ())[0]
    (duel_run,) = shard.duel_runs  # 1500 s, and the last 30 s of a job are not for measuring
    for now, fits in ((0, True), (1000, True), (1001, False), (9999, False)):
        assert has_time(shard, duel_run, now=now, ends_at=2530) is fits
    assert has_time(shard, duel_run, now=0, ends_at=None)


def test_no_shard_is_longer_than_its_job_limit(state: State, plan: Plan) -> None:
    """The site's jobs have 45 min; 90 s of them are not for measuring."""
    kinds = {describe_kind(duel): 900.0 for duel in plan.duels}  # 3 x 15 min
    assert [len(shard.seconds) for shard in cut_shards(plan, state, kinds, ())] == [2, 1]


def test_only_one_process_at_a_time_cuts_a_campaign_into_shards(state: State, plan: Plan) -> None:
    with (
        lock_campaign(plan, state),
        pytest.raises(UserError, match="another one measures it"),
        lock_campaign(plan, state),
    ):
        pass
    with lock_campaign(plan, state):
        pass


def test_ceilings_go_first_then_the_default_track(state: State) -> None:
    matches = [
        _match("noop", "bare", track="tuned"),
        _match("noop", "bare", limits=DuelLimits(rounds=2)),
        _match("noop", "bare", limits=DuelLimits(rounds=3)),
        _match("copy", "cpu_256m", arms=(Arm(name="jax-jit", request="jax@newest"),)),
    ]
    plan = _make_plan(matches)
    (shard,) = cut_shards(plan, state, {}, ())
    assert shard.duel_runs == tuple(plan.duels[place].duel_run for place in (3, 1, 2, 0))


def test_durations_of_earlier_nights_override_the_estimate_of_the_plan(state: State) -> None:
    jax = Arm(name=JAX.arm, request="jax@newest")
    plan = _make_plan([_match("mlp", "train_b128", arms=(jax,), expected_s=9000)])
    (duel,) = plan.duels
    for night, minutes in enumerate((1, 5, 3)):
        document = make_document([dataclasses.replace(JAX, version="0.0.9")])
        document["duel_run"] = f"{night:016x}"
        document["duel"] |= {"workload": "mlp", "case": "train_b128", "starts": duel.limits.starts}
        document["allocation"] |= {
            "site": plan.site,
            "started_at": f"2026-01-0{night + 1}T03:00:00+00:00",
            "ended_at": f"2026-01-0{night + 1}T03:0{minutes}:00+00:00",
        }
        spool_document(state.spool, document)
    engine = open_database(state.database_url)
    assert not ingest_spool(engine, state).rejected
    durations = read_durations(engine, plan.site)
    assert durations[describe_kind(duel)] == 180.0
    assert read_durations(engine, "elsewhere") == {}
    other = _make_plan([_match("mlp", "train_b128", arms=(jax, jax))])
    assert describe_kind(other.duels[0]) not in durations
    (shard,) = cut_shards(plan, state, durations, ())
    assert shard.seconds == {duel.duel_run: 180.0} and shard.num_guessed == 0
    assert expect_durations(state, plan.site)(duel) == 180.0
    assert expect_durations(state, plan.site)(other.duels[0]) == other.duels[0].expected_s


def test_a_node_opens_only_the_shard_it_was_sent(state: State, plan: Plan, tmp_path: Path) -> None:
    shard = cut_shards(plan, state, {}, ())[0]
    assert load_shard(state, "night", shard.id, shard.token) == shard
    elsewhere = open_state(tmp_path / "elsewhere")
    with pytest.raises(CampaignIncompleteError, match="no shard: this node does not share"):
        load_shard(elsewhere, "night", shard.id, shard.token)
    with pytest.raises(CampaignIncompleteError, match="another shard of that name"):
        load_shard(state, "night", shard.id, "0" * 16)  # such as a copy of the folder
    for hostile in ("../../plan", "", "/etc/passwd", shard.id + "/"):
        with pytest.raises(UserError, match="wanted the id of a shard"):
            load_shard(state, "night", hostile, shard.token)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(0, 12))
def test_separate_allocations_share_a_node_only_if_there_are_too_few(
    num_nodes: int, num: int
) -> None:
    nodes = [f"node{number}" for number in range(num_nodes)]
    left = [set(nodes) - set(excluded) for excluded in assign_nodes(nodes, num)]
    assert all(left)
    if num <= num_nodes:
        assert sum(map(len, left)) == len(set().union(*left))
    else:
        users = Counter(node for one in left for node in one)
        assert set(users) == set(nodes) and max(users.values()) - min(users.values()) <= 1
    assert assign_nodes([], num) == [()] * num


def test_duels_of_a_confirmation_use_separate_nodes_also_after_a_retry(
    state: State, plan: Plan
) -> None:
    separate = dataclasses.replace(plan, separate_nodes=True)
    short = {describe_kind(duel): 10.0 for duel in plan.duels}
    nodes = ("a", "b", "c", "d")
    shards = cut_shards(separate, state, short, (), nodes=nodes)
    assert [shard.exclude for shard in shards] == [("b", "c"), ("a", "c", "d"), ("a", "b", "d")]
    close_shard(state, shards[1], "it lost its node")
    (again,) = [
        shard
        for shard in cut_shards(separate, state, short, (), nodes=nodes)
        if shard not in shards
    ]
    assert (again.duel_runs, again.exclude) == (shards[1].duel_runs, shards[1].exclude)
    assert [len(cut.seconds) for cut in cut_shards(plan, _empty(state), short, ())] == [3]


def _empty(state: State) -> State:
    return open_state(state.root / "other")

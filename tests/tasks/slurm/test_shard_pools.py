"""Each pool of a Slurm site has a deployment that measures, and campaigns use it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from deployed_flows import DAILY, dump_deployments, list_few, read_deployments, stranger
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.deployments.runner import RunnerDeployment
from prefect.states import Cancelling, Running
from result_documents import make_plan

from benchcore.errors import UserError
from benchcore.running.shards import Shard
from benchcore.running.sites import load_site
from benchcore.state import open_state
from flows.compare import compare
from flows.measure_shard import measure_shard
from flows.server.deployments import DeployOptions, list_shard_pools, make_pool
from tasks.artifacts import shorten_id
from tasks.server.apply import Applied, apply
from tasks.server.pausing import set_paused
from tasks.server.prefect_server import TAG
from tasks.slurm.shards import Dispatch, find_runs

POOLS = ("slurm-local-h100", "slurm-local-urgent")


@pytest.fixture
def pools(wanted: DeployOptions) -> Iterator[DeployOptions]:
    """What is requested for a site with two pools; nothing of it is left."""
    yield dataclasses.replace(wanted, site=load_site("slurm-local"))
    found = read_deployments()
    with get_client(sync_client=True) as client:
        for name in set(POOLS) & found.keys():
            client.delete_deployment(found[name].id)
        for name in set(POOLS) & _list_pools():
            client.delete_work_pool(name)


def _apply(wanted: DeployOptions, *more: RunnerDeployment) -> Applied:
    flows = ("nightly", "compare", "confirm", "measure-shard")
    listed = [each for each in list_few(wanted) if each.flow_name in flows]
    shard_pools = list_shard_pools(wanted)
    return apply([*listed, *more], make_pool(wanted.site), DAILY, shard_pools)


def _list_pools() -> set[str]:
    with get_client(sync_client=True) as client:
        return {each.name for each in client.read_work_pools()}


@pytest.mark.usefixtures("server")
def test_each_pool_of_a_slurm_site_has_a_deployment_that_measures(
    wanted: DeployOptions, pools: DeployOptions
) -> None:
    done = _apply(pools)
    assert {f"measure-shard/{name}" for name in POOLS} < set(done.present)
    first = dump_deployments()
    for name in POOLS:
        measure = first[name]
        pool = pools.site.pools[name.removeprefix("slurm-local-")]
        assert measure["work_pool_name"] == name and measure["tags"] == [TAG, "slurm-local"]
        assert measure["entrypoint"] == "flows.measure_shard.measure_shard"
        job = measure["job_variables"]
        assert (job["minutes"], job["folder"]) == (pool.minutes, str(pools.root))
        assert job["env"]["DEADHEAT_STATE"] == str(pools.root)
        with get_client(sync_client=True) as client:
            assert client.read_work_pool(name).type == "slurm"
    assert _apply(pools).removed == () and dump_deployments() == first
    assert _apply(wanted).removed == POOLS
    assert not set(POOLS) & set(read_deployments()) and set(POOLS) < _list_pools()


@pytest.mark.usefixtures("server")
def test_a_work_pool_of_another_type_is_refused_and_left_alone(
    wanted: DeployOptions, pools: DeployOptions
) -> None:
    """The other pools and the deployments are applied; a namesake that a campaign made is kept."""
    _apply(wanted)
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=POOLS[1], type="process"))
        with pytest.raises(UserError, match="'slurm-local-urgent' of type 'slurm', got type 'proc"):
            _apply(pools)
        assert client.read_work_pool(POOLS[1]).type == "process"
        assert (
            POOLS[0] in _list_pools() and client.read_work_pool("deadheat").concurrency_limit == 8
        )
        client.delete_work_pool(POOLS[1])
        made = _hand_over(pools, client)
        _apply(pools)
        assert dump_deployments()[POOLS[0]]["id"] == made.deployment_id


@pytest.mark.usefixtures("server")
def test_a_campaign_uses_the_deployment_of_its_pool_and_repairs_one_that_differs(
    pools: DeployOptions,
) -> None:
    _apply(pools)
    first = dump_deployments()
    with get_client(sync_client=True) as client:
        run = _hand_over(pools, client)
        assert run.deployment_id == first["slurm-local-h100"]["id"] and dump_deployments() == first
        assert run.work_pool_name == "slurm-local-h100"
        other = stranger.to_deployment("slurm-local-h100", work_pool_name="deadheat")
        shards, strange = first["slurm-local-h100"], other.entrypoint
        fields = {name: shards[name] for name in ("flow_id", "name", "tags", "description")}
        client.create_deployment(**fields, entrypoint=strange, work_pool_name="deadheat")
        assert _hand_over(pools, client, "1").deployment_id == shards["id"]
        repaired = dump_deployments()["slurm-local-h100"]
        names = ("entrypoint", "work_pool_name", "parameter_openapi_schema", *fields)
        assert {each: repaired[each] for each in names} == {each: shards[each] for each in names}
        client.delete_deployment(shards["id"])
        run = _hand_over(pools, client, "2")
        assert run.deployment_id == read_deployments()["slurm-local-h100"].id


@pytest.mark.usefixtures("server")
def test_shards_of_running_campaigns_are_not_paused(pools: DeployOptions) -> None:
    _apply(pools)
    assert not set(POOLS) & set(set_paused(True, "deadheat", set(), "measure-shard").deployments)
    _apply(pools)
    paused = {name for name, each in read_deployments().items() if each.paused}
    assert "nightly" in paused and not paused & set(POOLS)
    set_paused(False, "deadheat", set(), "measure-shard")


@pytest.mark.usefixtures("server")
def test_a_cancelled_question_returns_its_allocations(pools: DeployOptions) -> None:
    _apply(pools)
    question = {"question": {"workload": "noop", "use_case": "op"}}
    requested = run_deployment("compare/compare", parameters=question, timeout=0)
    (hook,) = compare.on_cancellation_hooks
    with get_client(sync_client=True) as client:
        waits = _hand_over(pools, client, "3", f"compare-noop-{shorten_id(requested.id)}")
        runs = _hand_over(pools, client, "4", f"compare-noop-{shorten_id(requested.id)}")
        other = _hand_over(pools, client, "5", "compare-noop-0")
        client.set_flow_run_state(runs.id, Running(), force=True)
        hook(compare, client.read_flow_run(requested.id), Cancelling())
        states = [client.read_flow_run(each.id).state_type for each in (waits, runs, other)]
        assert states == [StateType.CANCELLED, StateType.CANCELLING, StateType.SCHEDULED]


def _hand_over(
    wanted: DeployOptions, client: SyncPrefectClient, number: str = "0", campaign: str = "night"
) -> FlowRun:
    """The run of a campaign's shard."""
    plan = make_plan(campaign, site="slurm-local")
    fields = {"schema": 1, "token": "", "campaign": campaign, "pool": "h100", "num_guessed": 0}
    shard = Shard(id=number * 16, seconds={}, **fields)
    dispatch = Dispatch(plan, open_state(wanted.root), wanted.site, {}, client)
    with pytest.raises(UserError, match="found none; start one where sbatch works"):
        dispatch.open_pool()
    dispatch.submit([shard], measure_shard)
    ((_, run),) = find_runs([shard], client)
    return run

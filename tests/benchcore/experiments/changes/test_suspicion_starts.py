from __future__ import annotations

import dataclasses
import json
import platform
import shutil
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from result_documents import JAX, TORCH, make_document
from stored_histories import make_side, make_suspicion

from benchcore.cell.measure.host import describe_device
from benchcore.errors import UserError
from benchcore.experiments.changes.suspicion_starts import (
    ConfirmContender,
    choose_contenders,
    choose_pool,
    draft_starts,
    list_candidates,
    read_starts,
    reuse_environments,
)
from benchcore.planning.matrix import Plan, save_plan
from benchcore.planning.profiles import load_profile
from benchcore.protocol import EnvironmentRecord, write_json
from benchcore.running.plans import campaign_folder
from benchcore.state import State, open_state
from benchcore.store.records import DuelRecord, FailedCheck, SuspicionRecord
from benchcore.verdict.duel.ratios import ContenderTimes

OLD, NEW, TORCH_SIDE = (
    make_side("jax", "0.9", "k1", compile="jit"),
    make_side("jax", "0.10", "k2", compile="jit"),
    make_side("torch", "2", "k3", compile="none"),
)


def _suspicion(**changes: Any) -> SuspicionRecord:
    fingerprint = str(describe_device("cpu")["fingerprint"])
    named = {"workload": "matmul", "case_name": "tiny_op", "device_fingerprint": fingerprint}
    return replace(make_suspicion(OLD, NEW, TORCH_SIDE, TORCH_SIDE, **named), **changes)


@pytest.fixture
def state(tmp_path: Path) -> State:
    """With the environments k1 to k4, two of them of one version of JAX."""
    state = open_state(tmp_path)
    named = {"k1": "jax-0.9", "k2": "jax-0.10", "k3": "torch-2", "k4": "jax-0.9"}
    for key, name in named.items():
        python = tmp_path / "environments" / key / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to("/usr/bin/env")
        record = EnvironmentRecord(
            name=name,
            key=key,
            lock_sha256="0" * 64,
            python=str(python),
            python_version="3.13.0",
            build="cpu",
            packages={},
        )
        write_json(python.parent.parent / "environment.json", dataclasses.asdict(record))
    return state


def test_a_python_that_was_upgraded_in_place_is_not_its_old_environment(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    venv.create(tmp_path / "system", symlinks=True, with_pip=False)
    python = tmp_path / "system" / "bin" / "python"
    [packages] = (tmp_path / "system").glob("lib/*/site-packages")
    for side in (OLD, NEW):
        for each in packages.glob("jax-*"):
            shutil.rmtree(each)
        (packages / f"jax-{side.version}.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: jax\nVersion: {side.version}\n"
        (packages / f"jax-{side.version}.dist-info" / "METADATA").write_text(metadata)
        record = EnvironmentRecord(
            name=f"jax-{side.version}",
            key=side.environment_key,
            lock_sha256=None,
            python=str(python),
            python_version=platform.python_version(),
            build="system",
            packages={"jax": side.version},
        )
        folder = state.environments / record.name
        folder.mkdir()
        write_json(folder / "environment.json", dataclasses.asdict(record))
    old, new, _, control = choose_contenders(_suspicion(), state)
    assert old.environment is None and control.environment is None
    assert new.environment is not None and new.environment.python == str(python)
    assert [each.request for each in (old, new, control)] == ["jax==0.9", "jax==0.10", "jax==0.9"]


def _plan(
    suspicion: SuspicionRecord, contenders: tuple[ConfirmContender, ...], starts: range = range(3)
) -> Plan:
    return draft_starts(suspicion, contenders, load_profile("ci"), starts)


def test_a_side_that_did_not_change_runs_once_and_the_control_is_the_old_one(state: State) -> None:
    contenders = choose_contenders(_suspicion(), state)
    assert [each.cells for each in contenders] == [
        ("a_old",),
        ("a_new",),
        ("b_old", "b_new"),
        ("control",),
    ]
    plan = _plan(_suspicion(), contenders)
    names = [each.name for each in plan.duels[0].contenders]
    assert names == ["jax-jit-0.9", "jax-jit-0.10", "torch-eager-2", "jax-jit-0.9.twin2"]


def test_a_side_whose_settings_changed_runs_with_both(state: State) -> None:
    """In one environment: without its old settings the machine would be blamed."""
    new = replace(TORCH_SIDE, settings={"compile": "default"})
    suspicion = _suspicion(a_new=OLD, b_new=new)
    contenders = choose_contenders(suspicion, state)
    cells = [each.cells for each in contenders]
    assert cells == [("a_old", "a_new"), ("b_old",), ("b_new",), ("control",)]
    planned = _plan(suspicion, contenders).duels[0].contenders
    assert [each.settings["compile"] for each in planned] == ["jit", "none", "default", "jit"]
    assert len({each.name for each in planned}) == 4
    assert len({each.release for each in planned}) == 2


def test_every_start_is_a_separate_duel_and_later_looks_add_more(state: State) -> None:
    contenders = choose_contenders(_suspicion(), state)
    first, second = _plan(_suspicion(), contenders), _plan(_suspicion(), contenders, range(3, 5))
    assert (first.campaign, second.campaign) == ("confirm-7-shift-3", "confirm-7-shift-5")
    assert first.separate_nodes and second.separate_nodes
    duels = [*first.duels, *second.duels]
    assert len({duel.hash for duel in duels}) == len({duel.seed for duel in duels}) == 5
    assert {(duel.limits.starts, duel.limits.max_starts, duel.limits.rounds) for duel in duels} == {
        (1, 1, 6)
    }
    assert all(duel.limits.probe for duel in duels)
    assert {release.role for release in first.releases.values()} == {"pinned"}  # no series of it


def test_a_later_attempt_measures_every_start_anew(state: State) -> None:
    contenders = choose_contenders(_suspicion(), state)
    first, again = (_plan(_suspicion(attempt=each), contenders) for each in ("", "0badcafe"))
    assert again.campaign == "confirm-7-shift-0badcafe-3"
    assert not {each.duel_run for each in first.duels} & {each.duel_run for each in again.duels}
    assert [each.hash for each in first.duels] == [each.hash for each in again.duels]


def test_the_exact_environments_of_the_nights_are_measured_again(state: State) -> None:
    contenders = choose_contenders(_suspicion(), state)
    plan = _plan(_suspicion(), contenders)
    reuse_environments(plan, contenders, state)
    kept = sorted((state.campaigns / plan.campaign / "environments").glob("*.json"))
    assert [json.loads(path.read_text())["key"] for path in kept] == ["k1", "k2", "k3"]


def test_two_environments_of_one_version_are_distinguished(state: State) -> None:
    suspicion = _suspicion(a_new=make_side("jax", "0.9", "k4", compile="jit"))
    contenders = choose_contenders(suspicion, state)
    plan = _plan(suspicion, contenders)
    reuse_environments(plan, contenders, state)
    kept = sorted((state.campaigns / plan.campaign / "environments").glob("*.json"))
    assert [json.loads(path.read_text())["key"] for path in kept] == ["k1", "k4", "k3"]
    assert plan.duels[0].contenders[1].name == "jax-jit-0.9.twin2"
    with pytest.raises(UserError, match=r"'k9' of 'jax-jit-0\.9' was removed or"):
        choose_contenders(_suspicion(a_new=make_side("jax", "0.9", "k9", compile="jit")), state)


def test_another_device_is_refused(state: State) -> None:
    suspicion = _suspicion()
    other = replace(suspicion, key=replace(suspicion.key, device_fingerprint="0" * 16))
    with pytest.raises(UserError, match="device of suspicion 7, 0000000000000000"):
        _plan(other, choose_contenders(other, state))


def _record(plan: Plan, number: int, marks: tuple[FailedCheck, ...] = ()) -> DuelRecord:
    duel = plan.duels[number]
    sides = [
        ContenderTimes(
            name=each.name,
            arm=each.arm,
            framework="jax",
            version="1",
            role="pinned",
            starts={0: {0: 10.0 * position + number, 1: 1.0}},
            degraded={0: {1: "throttled"}},
        )
        for position, each in enumerate(duel.contenders)
    ]
    return DuelRecord(
        duel_run=duel.duel_run,
        campaign=plan.campaign,
        checked=True,
        sides=tuple(sides),
        failed_checks=marks,
    )


def _document(plan: Plan, number: int) -> dict[str, Any]:
    device = describe_device("cpu")
    return {"duel_run": plan.duels[number].duel_run, "allocation": {"device": device}}


def test_a_start_on_another_device_does_not_count(state: State) -> None:
    """A Slurm site allocates any node of a pool."""
    contenders = choose_contenders(_suspicion(), state)
    plan = _plan(_suspicion(), contenders, range(2))
    documents = [_document(plan, 0), _document(plan, 1)]
    documents[1]["allocation"]["device"] |= {"fingerprint": "0" * 16, "model": "Other CPU"}
    records = [_record(plan, 0), _record(plan, 1)]
    starts, lost = read_starts(plan, _suspicion(), contenders, records, documents)
    assert [start["a_old"][0] for start in starts] == [0.0]
    [reason] = lost
    assert reason.startswith("measured on another device, 0000000000000000 (Other CPU), not on ")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Slurm site of two pools."""
    folder = tmp_path / "sites"
    folder.mkdir()
    pools = "[pools.old]\npartition = 'a'\n[pools.new]\npartition = 'b'\n"
    site = "name = 'cluster'\nkind = 'slurm'\ndefault_pool = 'new'\n"
    (folder / "cluster.toml").write_text(site + pools)
    monkeypatch.setenv("DEADHEAT_SITES", str(folder))
    return "cluster"


@pytest.mark.parametrize(
    ("night", "pool"),
    [
        ({}, "old"),
        ({"site": "local"}, None),
        ({"pool": "gone"}, None),
        ({"campaign": "night-19"}, None),
    ],
)
def test_starts_run_in_the_pool_of_the_night(
    state: State, cluster: str, night: dict[str, str], pool: str | None
) -> None:
    """Its other pools may have other devices."""
    contenders = choose_contenders(_suspicion(), state)
    plan = draft_starts(_suspicion(), contenders, load_profile("ci"), range(2), site=cluster)
    seen = replace(plan, duels=(), **{"campaign": "night-20", "pool": "old", **night})
    save_plan(seen, campaign_folder(state, seen.campaign) / "plan.json")
    assert plan.pool is None
    assert choose_pool(plan, _suspicion(), state) == replace(plan, pool=pool)


def test_starts_are_read_by_cell_and_excluded_ones_have_a_reason(state: State) -> None:
    contenders = choose_contenders(_suspicion(), state)
    plan = _plan(_suspicion(), contenders)
    rest = {"suite": "s", "expectation": "e", "reason": "unproven"}
    pair = {"contender": "jax-jit-0.9", "other": "torch-eager-2"}
    mark = FailedCheck(duel_run=plan.duels[1].duel_run, **pair, **rest)
    seen = {"start": 0, "round": 1, "gemm_ns": 7, "copy_ns": 8}
    rows = [{**seen, "round": 0, "gemm_ns": None}, seen]
    document = _document(plan, 0) | {"probe": {"rows": rows, "failure": None}}
    records = [_record(plan, 0), _record(plan, 1, (mark,))]
    starts, lost = read_starts(plan, _suspicion(), contenders, records, [document])
    assert lost == ["unproven", "a start has no result"]
    assert starts == [
        {
            "a_old": {0: 0.0},
            "a_new": {0: 10.0},
            "b_old": {0: 20.0},
            "b_new": {0: 20.0},
            "control": {0: 30.0},
            "gemm": {1: 7},  # numpy was not there in the first round
            "copy": {0: 8, 1: 8},
        }
    ]


def test_differences_are_listed_with_the_likeliest_first(state: State) -> None:
    contenders = choose_contenders(_suspicion(), state)
    racers = [JAX, replace(JAX, name="new"), TORCH, replace(JAX, name="twin")]
    document = make_document(racers)
    new = document["contenders"][1]
    new["environment"]["packages"] = {"jax": "0.9.0", "absl-py": "2", "jax-cuda13-plugin": "1"}
    new["effective"]["manifest"]["matmul_precision"] = "tf32"
    found = list_candidates(contenders, document)
    assert [(each["kind"], each["name"]) for each in found] == [
        ("effective", "manifest.matmul_precision"),
        ("package", "jax-cuda13-plugin"),
        ("package", "absl-py"),
    ]
    assert {each["side"] for each in found} == {"a"}
    assert (found[0]["old"], found[0]["new"]) == ("ieee", "tf32")


def test_further_packages_of_an_arm_are_measured_again(state: State) -> None:
    """Their environments are those of the nights, or are rebuilt with the same packages."""
    sides = {
        name: dataclasses.replace(TORCH_SIDE, arm="torch-eager-with-opacus")
        for name in ("b_old", "b_new")
    }
    contenders = choose_contenders(_suspicion(**sides), state)
    assert [each.request for each in contenders] == [
        "jax==0.9",
        "jax==0.10",
        "torch[opacus]==2",
        "jax==0.9",
    ]
    assert _plan(_suspicion(), contenders).releases["torch[opacus]==2"].extras == ("opacus",)

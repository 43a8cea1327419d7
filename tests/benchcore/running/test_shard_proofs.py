"""What a shard's duels rest on is proven on its own device, once."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from benchcore.environments.version_requests import Release
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.planning.matrix import Plan, make_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import JAX_NEWEST, STDLIB, TORCH_EAGER
from benchcore.protocol import EnvironmentRecord
from benchcore.running import equivalence
from benchcore.running.device_lock import hold_device
from benchcore.running.duel_process import OutOfTimeError
from benchcore.state import State, open_state

PAIR = (JAX_NEWEST, TORCH_EAGER)


def _release(request: str) -> Release:
    framework = request.split("@")[0]
    return Release(
        framework=framework,
        version="1.0",
        role="newest",
        python=Path(sys.executable),
        python_version="3.11.7",
    )


@pytest.fixture
def plan() -> Plan:
    matches = (
        Match(workload="mlp", case="tiny_infer", arms=PAIR, expected_s=1),
        Match(workload="resnet50", case="infer_b1", arms=PAIR, expected_s=1),
        Match(workload="noop", case="bare", arms=(STDLIB,), expected_s=1),
    )
    requests = ("jax@newest", "torch@newest", "stdlib")
    releases = {request: _release(request) for request in requests}
    profile = Profile(name="p", matches=matches)
    return make_plan(profile, releases, campaign="night", site="slurm-local")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """One whose environments are there in name only."""

    def recall(plan: Plan, request: str, state: State) -> EnvironmentRecord:
        release = plan.releases[request]
        return EnvironmentRecord(
            name=request,
            key=release.framework,
            lock_sha256=None,
            python=sys.executable,
            python_version="3.11.7",
            build="system",
            packages={},
        )

    monkeypatch.setattr(equivalence, "load_environment", recall)
    return open_state(tmp_path)


@pytest.fixture
def proven(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The workloads that a proof was started for; a device stands for every machine."""
    started: list[str] = []

    def start_proof(command: list[str], *_: Any) -> int:
        order = json.loads(Path(command[-3]).read_text())
        started.append(order["workload"])
        Path(command[-2]).write_text(json.dumps({"device": equivalence.describe_device("cpu")}))
        return 0

    monkeypatch.setattr(equivalence, "_run", start_proof)
    monkeypatch.setattr(equivalence, "describe_device", lambda _: {"fingerprint": "here"})
    return started


def test_only_proofs_that_the_shard_needs_are_made_each_once(
    plan: Plan, state: State, proven: list[str]
) -> None:
    mlp, resnet, noop = (duel.duel_run for duel in plan.duels)
    equivalence.prove_duels(plan, (noop,), state)
    assert proven == []
    equivalence.prove_duels(plan, (mlp, noop), state)
    equivalence.prove_duels(plan, (mlp,), state)
    assert proven == ["mlp"]
    equivalence.prove_duels(plan, (mlp, resnet), state)
    assert proven == ["mlp", "resnet50"]


def test_each_environment_is_compared_once_for_any_number_of_proofs(
    plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of PyTorch has 28,000 files."""
    compared, load = list[str](), equivalence.load_environment

    def count(plan: Plan, request: str, state: State) -> EnvironmentRecord | str:
        compared.append(request)
        return load(plan, request, state)

    monkeypatch.setattr(equivalence, "load_environment", count)
    found = equivalence.list_campaign_proofs(plan, state)
    assert [each.workload for each in found] == ["mlp", "resnet50"]
    assert compared == ["jax@newest", "torch@newest"]
    (only,) = equivalence.list_campaign_proofs(plan, state, ("resnet50", "fp32_ieee"))
    assert only == found[1]
    compared.clear()
    assert equivalence.list_campaign_proofs(plan, state, ("mlp", "bf16")) == []
    assert compared == []


def test_a_proof_holds_only_for_its_device(
    plan: Plan, state: State, proven: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlp = plan.duels[0].duel_run
    equivalence.prove_duels(plan, (mlp,), state)
    monkeypatch.setattr(equivalence, "describe_device", lambda _: {"fingerprint": "elsewhere"})
    equivalence.prove_duels(plan, (mlp,), state)
    assert proven == ["mlp", "mlp"]


@pytest.mark.parametrize(("status", "times"), [("oom", 2), ("timeout", 2), ("ok", 1)])
def test_a_proof_in_which_a_side_failed_is_made_again(
    status: str, times: int, plan: Plan, state: State, proven: list[str]
) -> None:
    mlp = plan.duels[0].duel_run
    equivalence.prove_duels(plan, (mlp,), state)
    (path,) = state.proofs.glob("*.json")
    sides = [{"name": "jax-1.0", "status": "ok"}, {"name": "torch-1.0", "status": status}]
    path.write_text(json.dumps({**json.loads(path.read_text()), "contenders": sides}))
    equivalence.prove_duels(plan, (mlp,), state)
    assert proven == ["mlp"] * times


def test_a_proof_that_would_outlive_its_allocation_is_stopped(
    plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prove_for_ever(command: list[str], **how: Any) -> subprocess.Popen[str]:
        return popen([sys.executable, "-c", "import time; time.sleep(600)"], **how)

    popen = subprocess.Popen
    monkeypatch.setattr(equivalence, "describe_device", lambda _: {"fingerprint": "here"})
    monkeypatch.setattr(equivalence.subprocess, "Popen", prove_for_ever)
    before = time.time()
    duels = [duel.duel_run for duel in plan.duels]
    completed, (failure,) = equivalence.prove_duels(plan, duels, state, before + 1)
    assert not completed and "the proof would not have ended" in failure
    assert 1 <= time.time() - before < 60
    assert not list(state.proofs.glob("*.json"))


def test_waiting_for_a_proof_by_another_job_is_limited(
    plan: Plan, state: State, proven: list[str]
) -> None:
    mlp = plan.duels[0].duel_run
    equivalence.prove_duels(plan, (mlp,), state)
    (lock,), (document,) = state.proofs.glob("*.lock"), state.proofs.glob("*.json")
    with FileLock(lock):
        assert equivalence.prove_duels(plan, (mlp,), state, time.time() + 0.2) == ([], [])
        document.unlink()
        completed, (failure,) = equivalence.prove_duels(plan, (mlp,), state, time.time() + 0.2)
    assert not completed and "still proving mlp in fp32" in failure


def test_a_proof_that_another_job_completes_took_the_time_of_this_one_too(
    plan: Plan, state: State, proven: list[str]
) -> None:
    mlp = plan.duels[0].duel_run
    equivalence.prove_duels(plan, (mlp,), state)
    (lock,), (document,) = state.proofs.glob("*.lock"), state.proofs.glob("*.json")
    content = document.read_bytes()
    document.unlink()
    with ThreadPoolExecutor(1) as this_job:
        with FileLock(lock):
            waiting = this_job.submit(equivalence.prove_duels, plan, (mlp,), state, _in_a_minute())
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
            document.write_bytes(content)
        assert waiting.result(30) == ([document.stem], [])
    assert proven == ["mlp"]


def test_a_campaign_waits_for_a_proof_by_another_process_no_longer_than_a_night(
    plan: Plan, state: State, proven: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on this machine, where no allocation ends: that process may be stopped."""
    equivalence.prove_duels(plan, (plan.duels[0].duel_run,), state)
    (lock,) = state.proofs.glob("*.lock")
    monkeypatch.setattr(equivalence, "LONGEST_MEASURING_WAIT_S", 0.1)
    request = equivalence.list_campaign_proofs(plan, state)[0]
    with FileLock(lock), pytest.raises(OutOfTimeError, match="still proving mlp in fp32"):
        equivalence.run_proof(request, state)


def test_a_proof_reports_that_it_waits_for_the_device(
    plan: Plan, state: State, proven: list[str]
) -> None:
    request = equivalence.list_campaign_proofs(plan, state)[0]
    lines = list[str]()
    with ThreadPoolExecutor(1) as pool:
        with hold_device("cpu", lambda: None) as held:
            assert held
            done = pool.submit(equivalence.prove, request, state, lines.append, repeat=False)
            while len(lines) < 2 and not done.done():
                time.sleep(0.05)
            assert lines == [
                "proving mlp in fp32_ieee: infer",
                "mlp in fp32_ieee waits for another process that measures on this device",
            ]
            assert proven == []
        with pytest.raises(CampaignIncompleteError, match="wanted"):  # that document has no rows
            done.result(30)
    assert proven == ["mlp"]


def _in_a_minute() -> float:
    return time.time() + 60


@pytest.mark.parametrize("status", ["oom", "ok"])
def test_a_proof_that_fails_does_not_stop_the_next_one(
    status: str, plan: Plan, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_proof(command: list[str], *_: Any) -> int:
        if json.loads(Path(command[-3]).read_text())["workload"] == "mlp" and status == "ok":
            return 1
        document = {"device": {"fingerprint": "here"}, "contenders": [{"status": status}]}
        Path(command[-2]).write_text(json.dumps(document))
        return 0

    monkeypatch.setattr(equivalence, "_run", start_proof)
    monkeypatch.setattr(equivalence, "describe_device", lambda _: {"fingerprint": "here"})
    duels = [duel.duel_run for duel in plan.duels]
    completed, failures = equivalence.prove_duels(plan, duels, state)
    assert len(list(state.proofs.glob("*.json"))) == (1 if status == "ok" else 2)
    assert len(completed) == len(failures) == (1 if status == "ok" else 0)


def test_nothing_is_proven_on_a_device_that_is_not_here(
    plan: Plan, state: State, proven: list[str]
) -> None:
    there = tuple(dataclasses.replace(duel, device="cuda:99") for duel in plan.duels)
    elsewhere = dataclasses.replace(plan, duels=there)
    equivalence.prove_duels(elsewhere, [duel.duel_run for duel in elsewhere.duels], state)
    for wanted in equivalence.list_campaign_proofs(elsewhere, state):
        with pytest.raises(UserError, match="wanted device 'cuda:99', but there is none here"):
            equivalence.prove(wanted, state, lambda text: None, repeat=False)
    assert proven == []

"""What a device's short duels show, from documents of a GPU that is not here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from result_documents import make_document, make_profile

from benchcore.cell.measure import host
from benchcore.environments.version_requests import Release
from benchcore.errors import EnvironmentBuildError
from benchcore.planning import matrix
from benchcore.planning.catalog import check_case
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import Profile
from benchcore.running.duel_process import ConductorFailedError
from benchcore.running.verify import device_checks
from benchcore.running.verify.device_checks import DeviceCheck, conclude, try_device
from benchcore.state import open_state

_VERSIONS = {"cudnn": "9.26.0", "cublas": "13.4.1", "nccl": "2.30.7"}


def _on_gpu() -> dict[str, Any]:
    """A document of an H100 on which everything went well."""
    document = make_document(starts=1)
    document["allocation"]["device"] |= {
        "kind": "gpu",
        "model": "NVIDIA H100 80GB HBM3",
        "pci_address": "00000000:3B:00.0",
    }
    for each in document["contenders"]:
        each["effective"]["versions"] = dict(_VERSIONS)
        each["effective"]["pci_address"] = "0000:3b:00.0"
        each["starts"][0]["profile"] = make_profile(graph_launches=0)
        each["effective"]["manifest"] |= {"device": "gpu", "autotune": "on"}
        each["settings"] |= {"cudnn_benchmark": "on"} if each["framework"] == "torch" else {}
        each["starts"][0]["canary"] = {"matmul_seen": "tf32", "conv_seen": "tf32"}
        for block in each["starts"][0]["blocks"]:
            block["telemetry"]["missing"] = {}
    jax = document["contenders"][0]
    jax["effective"]["device_kind"] = "NVIDIA H100 80GB HBM3"
    jax["effective"]["manifest"]["graphs"] = "on"
    return document


def _plan_without_an_index(profile: Profile, *, campaign: str, site: str, **_: Any) -> Plan:
    releases = {
        f"{framework}@newest": Release(
            framework=framework,
            version="1.0",
            role="newest",
            python=Path(sys.executable),
            python_version="3.13.0",
        )
        for framework in ("jax", "torch")
    }
    return matrix.make_plan(profile, releases, campaign=campaign, site=site)


def _find(checks: list[DeviceCheck], name: str) -> DeviceCheck:
    return next(each for each in checks if each.check == name)


def _failed(document: dict[str, Any]) -> list[DeviceCheck]:
    return [each for each in conclude(document) if each.status == "failed"]


def test_a_healthy_gpu_passes_every_check() -> None:
    checks = conclude(_on_gpu())
    assert {each.status for each in checks} == {"passed"}
    assert {each.check for each in checks} == {
        *("runs", "precision", "counters", "libraries", "same device", "graphs", "parity"),
        "outputs",
    }
    assert _find(checks, "precision").result.endswith("matmul tf32, convolution tf32")
    assert "cudnn 9.26.0, cublas 13.4.1, nccl 2.30.7" in _find(checks, "libraries").result
    assert not any(each.fix for each in checks)


def test_a_contender_that_crashed_fails_with_its_reason() -> None:
    document = _on_gpu()
    document["contenders"][1] |= {"status": "crash", "failure": {"reason": "illegal address"}}
    (failed,) = _failed(document)
    assert failed.check == "runs"
    assert failed.result.endswith("torch-2.10: crash: illegal address")
    assert failed.fix
    assert "parity" not in {each.check for each in conclude(document)}


def test_a_failed_pass_and_refused_counters_fail() -> None:
    document = _on_gpu()
    document["contenders"][0]["effective"]["failed_passes"] = ["energy: NVML: GPU is lost"]
    start = document["contenders"][1]["starts"][0]
    start["blocks"][0]["telemetry"]["missing"] = {"power_mw": "NVML: Insufficient Permissions"}
    runs, counters = _failed(document)
    assert runs.result.endswith("jax-0.9: energy: NVML: GPU is lost")
    assert counters.result.endswith("power_mw: NVML: Insufficient Permissions")


def test_sides_that_differ_fail() -> None:
    document = _on_gpu()
    document["contenders"][1]["effective"]["manifest"]["matmul_precision"] = "tf32"
    document["equivalence"][0]["agrees"] = False
    parity, outputs = _failed(document)
    assert "matmul precision 'ieee' on jax-0.9, 'tf32' on torch-2.10" in parity.result
    assert outputs.check == "outputs"


@pytest.mark.parametrize(
    "of_jax",
    [
        {"pci_address": "0000:86:00.0"},
        {"pci_address": None, "device_kind": "NVIDIA A100-SXM4-80GB"},
    ],
    ids=["another of the same model", "another model"],
)
def test_computing_on_another_gpu_than_nvml_watches_fails(of_jax: dict[str, Any]) -> None:
    document = _on_gpu()
    document["contenders"][0]["effective"] |= of_jax
    failed = _failed(document)
    assert [each.check for each in failed] == ["same device"]
    assert "CUDA_DEVICE_ORDER" in failed[0].fix


def test_a_gpu_whose_address_nobody_knows_is_compared_by_its_model() -> None:
    document = _on_gpu()
    document["allocation"]["device"]["pci_address"] = None
    found = [each for each in conclude(document) if each.check == "same device"]
    assert [(each.status, "watches 'NVIDIA H100" in each.result) for each in found] == [
        ("passed", True)
    ]


def test_graphs_that_the_profile_lacks_fail() -> None:
    document = _on_gpu()
    torch = document["contenders"][1]
    torch["effective"]["manifest"]["graphs"] = "on"
    torch["settings"]["compile"] = "reduce-overhead"
    (failed,) = _failed(document)
    assert failed.check == "graphs"
    assert "launched no CUDA graph" in failed.result
    torch["starts"][0]["profile"]["graph_launches"] = 20
    assert _failed(document) == []


def test_a_device_of_unknown_memory_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"model": "NVIDIA H200", "memory_bytes": None, "driver": None}
    facts |= {"missing": {"memory_bytes": "NVML: GPU is lost"}}
    monkeypatch.setattr(host, "describe_device", lambda device: facts)
    described = device_checks._describe_device("cuda").result
    assert described == "NVIDIA H200, memory unknown; memory_bytes: NVML: GPU is lost"


def test_every_case_of_the_device_check_exists() -> None:
    """Each kind of tensor core, convolutions that Inductor makes templates of, energy, the largest
    array, and a training by CUDA graphs."""
    for match in device_checks._ON_GPU:
        check_case(match.workload, match.case)
    limits = [match.limits for match in device_checks._ON_GPU]
    assert any(each.passes for each in limits if each)
    tried = {(each.workload, each.case): each for each in device_checks._ON_GPU}
    assert ("copy", "gpu_2g") in tried
    graphs = tried["mlp", "tiny_train"]
    assert [arm.settings["compile"] for arm in graphs.arms] == ["jit", "reduce-overhead"]
    assert graphs.limits is not None and graphs.limits.passes, "the profile counts launches"


def test_what_cannot_be_built_or_measured_is_a_failed_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise EnvironmentBuildError("built for CUDA 13")

    def die(*_: object) -> None:
        raise ConductorFailedError("the conductor ended with 137")

    monkeypatch.setattr(device_checks, "provision", refuse)
    monkeypatch.setattr(device_checks, "run_duel", die)
    monkeypatch.setattr(device_checks, "draft_plan", _plan_without_an_index)
    checks = try_device("cpu", open_state(tmp_path), lambda text: None)
    failed = {each.check: each.result for each in checks if each.status == "failed"}
    assert failed["environment"].endswith(": built for CUDA 13")
    assert failed["runs"] == "the conductor ended with 137"
    assert _find(checks, "device").result.startswith(host.describe_host()["cpu_model"])

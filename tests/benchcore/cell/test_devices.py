"""Devices by name: a device that is not there is a status of every contender, and never a crash."""

from __future__ import annotations

import dataclasses
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from duel_orders import add_gpus, make_contender, make_order, run_order

from benchcore.device_names import Device, parse_device
from benchcore.protocol import EnvironmentRecord, encode
from benchcore.running.duel_process import run_duel
from benchcore.state import State


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("cpu", Device("cpu", 0)),
        ("tpu", Device("tpu", 0)),
        ("cuda", Device("cuda", 0)),
        ("cuda:0", Device("cuda", 0)),
        ("cuda:127", Device("cuda", 127)),
    ],
)
def test_a_device_is_known_by_its_name(name: str, device: Device) -> None:
    assert parse_device(name) == device


@pytest.mark.parametrize(
    "name",
    [
        *("", "CPU", "gpu", "mps", "cpu:0", "tpu:0", "cuda:", "cuda:-1", "cuda:01", "cuda:1000"),
        *("cuda:x", "cuda:1:2", "cpu\n", " cpu", "cuda:\u0661", "$(id)", "x" * 10_000, None, 0),
    ],
)
def test_an_unknown_device_name_is_refused_in_one_line(name: object) -> None:
    with pytest.raises(ValueError, match=r"^no device .*; devices are 'cpu', 'cuda', ") as refused:
        parse_device(name)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("device", "gpus", "kind", "words"),
    [
        ("tpu", 4, "tpu", "'tpu', but there is none here (only CPUs and NVIDIA GPUs can be"),
        ("cuda", 0, "gpu", "'cuda', but there is none here (no GPU; driver 580.1)"),
        ("cuda:0", 0, "gpu", "'cuda:0', but there is none here (no GPU; driver 580.1)"),
        ("cuda:2", 2, "gpu", "(Fake GPU, Fake GPU; driver 580.1); choose 'cpu'"),
    ],
)
def test_an_absent_device_is_the_status_of_every_contender(
    state: State, snapshot: Path, device: str, gpus: int, kind: str, words: str
) -> None:
    add_gpus(snapshot, gpus)
    order = make_order(make_contender("a"), make_contender("b"), device=device)
    document = run_order(order, state, snapshot)
    for contender in document["contenders"]:
        assert contender["status"] == "unsupported"
        assert (contender["failure"]["stage"], contender["failure"]["start"]) == ("init", 0)
        assert words in contender["failure"]["reason"]
        assert [start["blocks"] for start in contender["starts"]] == [[]]
    assert document["duel"]["stopped_by"] == "no_pair"
    found = document["allocation"]["device"]
    assert (found["name"], found["kind"], found["count"]) == (device, kind, 0)
    assert (found["memory_bytes"], document["allocation"]["gpus"]) == (None, [])


def test_a_missing_library_to_see_a_gpu_is_reported(
    state: State, snapshot: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
    order = make_order(make_contender("bare", python=str(bare)), device="cuda")
    (contender,) = run_order(order, state, snapshot)["contenders"]
    assert contender["status"] == "unsupported"
    assert (
        "the package nvidia-ml-py, which detects GPUs, is not installed"
        in contender["failure"]["reason"]
    )


def test_an_order_for_no_device_at_all_is_refused(state: State, snapshot: Path) -> None:
    order = make_order(make_contender("a"), device="cuda:x")
    assert encode(order)["device"] == "cuda:x"
    with pytest.raises(ValueError, match="no device 'cuda:x'"):
        run_duel(order, state, snapshot, lambda event: None)


@pytest.mark.provisions
def test_a_gpu_that_its_framework_does_not_see_is_unsupported_and_not_retried(
    framework_environment: Callable[[str], EnvironmentRecord], state: State, snapshot: Path
) -> None:
    """NVML lists a hundred GPUs, real frameworks and bare Python see fewer."""
    add_gpus(snapshot, 100)
    jax, torch = framework_environment("jax@newest"), framework_environment("torch@newest")
    contenders = [
        dataclasses.replace(
            make_contender(name, framework=name, settings={"compile": mode}),
            version=record.packages[name],
            environment=record,
        )
        for name, mode, record in (("jax", "jit", jax), ("torch", "none", torch))
    ]
    order = make_order(
        *contenders, workload="mlp", case="tiny_infer", device="cuda:99", prepare_timeout_s=120.0
    )
    document = run_order(order, state, snapshot)
    for contender in document["contenders"]:
        assert contender["status"] == "unsupported", contender["failure"]
        assert contender["failure"]["stage"] == "init"
        assert "wanted device 'cuda:99', but " in contender["failure"]["reason"]
        assert contender["framework"] in contender["failure"]["reason"].lower()
    assert document["allocation"]["device"]["count"] == 1


def test_bare_python_runs_on_no_gpu(state: State, snapshot: Path) -> None:
    add_gpus(snapshot, 1)
    order = make_order(make_contender("bare"), device="cuda")
    (contender,) = run_order(order, state, snapshot)["contenders"]
    assert contender["status"] == "unsupported"
    assert contender["failure"]["reason"].endswith("but stdlib runs on 'cpu' only")

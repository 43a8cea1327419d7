"""Which measuring processes share a device, and so wait for each other."""

from __future__ import annotations

import pytest

from benchcore.cell.measure import gpu
from benchcore.running.device_lock import hold_device
from benchcore.running.slurm.slots import Slot


def _is_free(device: str, count: int = 1) -> bool:
    waited: list[str] = []
    with hold_device(device, lambda: waited.append(device), ends_at=0.0, count=count) as held:
        return held and not waited


def _enter_job(patched: pytest.MonkeyPatch, boards: str, visible: str | None) -> None:
    """A process that may use these boards of its node, and what Slurm or a person calls them."""
    patched.setattr(gpu, "survey", lambda: (True, "GPUs"))
    patched.setattr(gpu, "list_gpus", lambda: [{"uuid": f"GPU-{each}"} for each in boards])
    patched.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        patched.setenv("CUDA_VISIBLE_DEVICES", visible)


def test_jobs_on_one_node_measure_side_by_side_although_slurm_counts_each_jobs_gpus_from_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _enter_job(monkeypatch, boards="a", visible="0")
    with hold_device("cuda", lambda: None) as held:
        assert held and not _is_free("cuda")
        _enter_job(monkeypatch, boards="b", visible="0")
        assert _is_free("cuda")


@pytest.mark.parametrize(
    ("visible", "device", "is_free"),
    [
        *((None, "cuda", True), (None, "cuda:1", False), (None, "cuda:2", True)),
        *(("1", "cuda", False), ("1", "cuda:0", False), ("2,1", "cuda", True)),
        *(("2,1", "cuda:1", False), ("GPU-b", "cuda", False), ("GPU-c", "cuda", True)),
    ],
)
def test_a_gpu_is_one_device_under_all_its_names(
    visible: str | None, device: str, is_free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _enter_job(monkeypatch, boards="abc", visible=None)
    with hold_device("cuda:1", lambda: None) as held:
        assert held
        _enter_job(monkeypatch, boards="abc", visible=visible)
        assert _is_free(device) is is_free


def test_a_duel_on_several_gpus_holds_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    _enter_job(monkeypatch, boards="abc", visible=None)
    with hold_device("cuda:1", lambda: None, count=2) as held:
        assert held
        assert [_is_free(f"cuda:{ordinal}") for ordinal in range(3)] == [True, False, False]
        assert not _is_free("cuda", count=2)
        assert _is_free("cuda")  # what was refused holds nothing
    assert _is_free("cuda", count=3)


def test_without_nvml_a_gpu_is_what_cuda_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "survey", lambda: (False, "no NVIDIA driver"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with hold_device("cuda:1", lambda: None) as held:
        assert held and _is_free("cuda") and not _is_free("cuda:1")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")  # the slot of another duel
        assert not _is_free("cuda")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert _is_free("cuda:1")


def test_slots_of_one_allocation_measure_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    def enter(slot: Slot) -> None:
        for name, value in slot.environ.items():
            monkeypatch.setenv(name, value)

    enter(Slot("0", (0,)))
    with hold_device("cpu", lambda: None) as held:
        assert held and not _is_free("cpu")
        enter(Slot("1", (0,)))  # the allocation has fewer cores than GPUs
        assert _is_free("cpu")

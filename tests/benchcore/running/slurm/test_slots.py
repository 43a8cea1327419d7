"""Slots of an allocation: one GPU each, their own CPUs, and results that name the GPU."""

from __future__ import annotations

import os

import pytest

from benchcore.running.slurm.own_job import read_own_job
from benchcore.running.slurm.slots import Slot, list_gpus, pin_to_slot, split_allocation


def test_slots_divide_the_cpus_without_overlap() -> None:
    assert split_allocation(["0", "1"], {8, 1, 0, 9, 10}) == [Slot("0", (0, 1)), Slot("1", (8, 9))]
    assert split_allocation(["GPU-a", "GPU-b", "GPU-c"], {4, 5}) == [
        *(Slot("GPU-a", (4,)), Slot("GPU-b", (5,)), Slot("GPU-c", (4,)))
    ]


def test_a_slot_may_have_several_gpus() -> None:
    slots = split_allocation(["0", "1", "2", "3", "4"], {0, 1, 2, 3}, devices=2)
    assert slots == [Slot("0,1", (0, 1)), Slot("2,3", (2, 3))]
    assert list_gpus(slots[1].environ) == ("2", "3")


@pytest.mark.parametrize(
    ("named", "gpus"), [("0,1", ("0", "1")), ("", ()), ("NoDevFiles", ()), (None, ())]
)
def test_slots_have_the_gpus_that_cuda_shows(named: str | None, gpus: tuple[str, ...]) -> None:
    assert list_gpus({} if named is None else {"CUDA_VISIBLE_DEVICES": named}) == gpus


@pytest.mark.parametrize(
    ("visible", "seen", "expected"),
    [
        ("0,1", "1", ("3",)),  # where a cgroup hides the others, CUDA counts from 0
        ("0,1", "0", ("2",)),
        ("0,1", "0,1", ("2", "3")),
        ("0", "0", ("2", "3")),  # Slurm and CUDA disagree: nothing is guessed
    ],
)
def test_a_result_names_the_gpu_of_its_slot(
    visible: str, seen: str, expected: tuple[str, ...]
) -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": visible}
    record = read_own_job(environ, "").in_slot({"CUDA_VISIBLE_DEVICES": seen})
    assert record.gpus == expected


def test_a_thread_stays_on_the_cpus_of_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    slot = Slot("0", (min(before),))
    for name, value in slot.environ.items():
        monkeypatch.setenv(name, value)
    try:
        pin_to_slot()
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)

"""Which measuring processes share a device, and so wait for each other."""

from __future__ import annotations

import pytest

from benchcore.running.device_lock import hold_device
from benchcore.running.slurm.slots import Slot


def _is_free(device: str) -> bool:
    waited: list[str] = []
    with hold_device(device, lambda: waited.append(device), ends_at=0.0) as held:
        return held and not waited


def test_slots_of_one_allocation_measure_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    def enter(slot: Slot) -> None:
        for name, value in slot.environ.items():
            monkeypatch.setenv(name, value)

    enter(Slot("0", (0,)))
    with hold_device("cpu", lambda: None) as held:
        assert held and not _is_free("cpu")
        enter(Slot("1", (0,)))  # the allocation has fewer cores than GPUs
        assert _is_free("cpu")

"""A program that changes a global switch, or a step that waits or copies, is named."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import numpy as np
import pytest

from benchcore.cell.proof.host_calls import NONE, join_calls, list_host_calls
from benchcore.cell.proof.switches import AS_SET, describe_changes, list_process_switches


def test_a_switch_of_the_process_that_was_changed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list_process_switches()
    assert describe_changes(before, list_process_switches()) == AS_SET
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("_NOTE_OF_A_COMPILER", "1")
    assert describe_changes(before, list_process_switches()) == "variable OMP_NUM_THREADS '1'"
    monkeypatch.undo()
    enabled = gc.isenabled()
    gc.disable()
    found = describe_changes(before, list_process_switches())
    if enabled:
        gc.enable()
    assert found.startswith("garbage collection (False")


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (lambda: time.sleep(0), "time.sleep"),
        (lambda: time.monotonic(), "time.monotonic"),
        (lambda: np.asarray([1.0]), "numpy.asarray"),
        (lambda: sorted([2, 1]), NONE),
    ],
)
def test_what_a_step_does_on_the_host_is_named(step: Callable[[], object], named: str) -> None:
    assert join_calls(list_host_calls(step)) == named

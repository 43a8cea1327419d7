"""A program that changes a global switch, or a step that waits or copies, is named."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchcore.cell.proof.host_calls import NONE, join_calls, list_host_calls
from benchcore.cell.proof.switches import AS_SET, describe_changes, list_process_switches


def test_a_switch_of_the_process_that_was_changed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list_process_switches()
    assert describe_changes(before, list_process_switches()) == AS_SET
    monkeypatch.setenv("OMP_NUM_THREADS", "9")
    monkeypatch.setenv("_NOTE_OF_A_COMPILER", "1")
    assert describe_changes(before, list_process_switches()) == "variable OMP_NUM_THREADS '9'"
    monkeypatch.undo()
    enabled = gc.isenabled()
    gc.disable()
    found = describe_changes(before, list_process_switches())
    if enabled:
        gc.enable()
    assert found.startswith("garbage collection (False")


def test_a_setting_that_a_framework_declares_later_is_no_change_of_one() -> None:
    before = {"config jax_enable_x64": False}
    assert describe_changes(before, {**before, "config jax_pallas_debug": False}) == AS_SET
    assert describe_changes(before, {"config jax_enable_x64": True}) == "config jax_enable_x64 True"
    assert describe_changes(before, {**before, "variable NEW": "1"}) == "variable NEW '1'"


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


def _call_from(package: str, call: Callable[[], object]) -> Callable[[], object]:
    """A function of that package that makes the call."""
    scope: dict[str, Any] = {"__name__": f"{package}.inside", "call": call}
    exec("def step():\n    return call()", scope)  # a module's name is that of its globals
    return scope["step"]


def test_what_jax_does_itself_is_not_the_steps_and_what_it_is_handed_is() -> None:
    own = list_host_calls(_call_from("jax", time.monotonic))
    through_numpy = list_host_calls(_call_from("jax", _call_from("numpy", time.monotonic)))
    assert own == through_numpy == []
    handed = list_host_calls(_call_from("jax", lambda: time.monotonic()))
    assert handed == list_host_calls(_call_from("numpy", time.monotonic)) == ["time.monotonic"]

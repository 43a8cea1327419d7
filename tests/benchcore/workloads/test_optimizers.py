"""One more step in numpy is the step that torch's definition of the optimiser takes."""

from __future__ import annotations

import numpy as np
import pytest

from benchcore.planning.catalog import list_workloads
from benchcore.workloads.contract import import_spec
from benchcore.workloads.optimizers import AdamW, advance_adamw, advance_sgd

_ADAMW = AdamW(learning_rate=1e-2, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.1)
_GRADIENT = np.linspace(-1.0, 2.0, 50)


def _sgd(state: dict[str, dict[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    params, momentum = state["params"]["w"], state["momentum"]["w"]
    momentum = 0.9 * momentum + _GRADIENT * params + 0.2 * params
    return {"params": {"w": params - 1e-2 * momentum}, "momentum": {"w": momentum}}


def _adamw(state: dict[str, dict[str, np.ndarray]], step: int) -> dict[str, dict[str, np.ndarray]]:
    params, first, second = (
        state[group]["w"] for group in ("params", "first_moment", "second_moment")
    )
    gradient = _GRADIENT * params
    first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
    right = np.sqrt(second / (1 - 0.999**step)) + 1e-8
    params = params * (1 - 1e-2 * 0.1) - 1e-2 * first / (1 - 0.9**step) / right
    return {
        "params": {"w": params},
        "first_moment": {"w": first},
        "second_moment": {"w": second},
    }


def _start(*memory: str) -> dict[str, dict[str, np.ndarray]]:
    zeros = {group: {"w": np.zeros(50)} for group in memory}
    return {"params": {"w": np.linspace(0.5, 1.5, 50)}, **zeros}


def _reset(state: dict[str, dict[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    return {**_start(*(group for group in state if group != "params")), "params": state["params"]}


def test_a_step_of_sgd_is_torchs() -> None:
    before = _sgd(_sgd(_start("momentum")))
    fresh = _sgd(_reset(before))
    wanted = advance_sgd(before, fresh, learning_rate=1e-2, momentum=0.9)
    for group, of in _sgd(before).items():
        assert np.allclose(of["w"], wanted[group]["w"], rtol=1e-12)


@pytest.mark.parametrize("num_steps", [1, 2, 12, 100])
def test_a_step_of_adamw_is_torchs_after_any_number_of_steps(num_steps: int) -> None:
    before = _start("first_moment", "second_moment")
    for step in range(1, num_steps):
        before = _adamw(before, step)
    after, fresh = _adamw(before, num_steps), _adamw(_reset(before), 1)
    wanted = advance_adamw(before, after, fresh, _ADAMW)
    for group, of in after.items():
        moved = np.linalg.norm(of["w"] - before[group]["w"])
        assert np.linalg.norm(of["w"] - wanted[group]["w"]) <= 1e-3 * moved


def test_a_step_of_adamw_that_goes_too_short_a_way_is_not_taken_for_its_correction() -> None:
    before = _adamw(_adamw(_start("first_moment", "second_moment"), 1), 2)
    after, fresh = _adamw(before, 3), _adamw(_reset(before), 1)
    short = {"w": before["params"]["w"] + 0.1 * (after["params"]["w"] - before["params"]["w"])}
    wanted = advance_adamw(before, {**after, "params": short}, fresh, _ADAMW)
    missed = np.linalg.norm(wanted["params"]["w"] - short["w"])
    assert missed > 0.3 * np.linalg.norm(wanted["params"]["w"] - before["params"]["w"])


def test_every_workload_that_trains_can_say_where_one_more_step_leads() -> None:
    for workload in list_workloads():
        spec = import_spec(workload)
        trains = any(getattr(case, "use_case", "") == "train" for case in spec.cases.values())
        assert not trains or spec.advance is not None, workload

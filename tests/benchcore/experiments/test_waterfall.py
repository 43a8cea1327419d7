from __future__ import annotations

import pytest

from benchcore.errors import UserError
from benchcore.experiments.waterfall import WaterfallRequest, draft_waterfall, list_steps
from benchcore.planning.requests import CaseFilter


def _request(
    workload: str = "resnet50", device: str = "cpu", **changes: str | int
) -> WaterfallRequest:
    case_filter = CaseFilter(use_case="infer", batch={"resnet50": 4}.get(workload, 128))
    return WaterfallRequest(workload=workload, case_filter=case_filter, device=device, **changes)  # type: ignore[arg-type]


def test_each_step_inherits_the_settings_of_the_steps_before() -> None:
    steps = list_steps(_request(device="cuda:0"))
    assert [step.label for step in steps] == ["eager", "channels_last", "compile", "graphs", "JAX"]
    assert [step.contender for step in steps] == [
        "torch,compile=none",
        "torch,compile=none,layout=channels_last",
        "torch,compile=default,layout=channels_last",
        "torch,compile=reduce-overhead,layout=channels_last",
        "jax",
    ]
    assert not any(step.left_out for step in steps)


def test_cuda_graphs_are_left_out_without_a_gpu_with_a_reason() -> None:
    left_out = {step.label: step.left_out for step in list_steps(_request()) if step.left_out}
    assert left_out == {"graphs": "not run on this device: CUDA graphs need a GPU"}


def test_a_workload_without_convolutions_has_no_layout_step() -> None:
    steps = {step.label: step for step in list_steps(_request("mlp", device="cuda"))}
    assert "no layout" in (steps["channels_last"].left_out or "")
    assert "layout" not in steps["compile"].contender


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"starts": 1}, "got 1 and 10; choose both from 2 to 100"),
        ({"rounds": 101}, "from 2 to 100, got 5 and 101"),
        ({"torch": "jax"}, "wanted a version of torch with --torch, got 'jax'"),
        ({"jax": "torch==2.15.0"}, "wanted a version of jax with --jax"),
    ],
)
def test_a_meaningless_waterfall_is_refused(changes: dict[str, str | int], words: str) -> None:
    request = _request(**changes)
    with pytest.raises(UserError, match=words):
        draft_waterfall(request, list_steps(request))

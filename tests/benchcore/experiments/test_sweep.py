"""A sweep is one plan with a duel per value, and a curve with a point per value."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchcore.errors import UserError
from benchcore.experiments import sweep as module
from benchcore.experiments.compare import choose_case
from benchcore.experiments.sweep import (
    SweepRequest,
    conclude_sweep,
    draft_sweep,
    is_measured,
    list_rows,
)
from benchcore.planning.requests import CaseFilter
from benchcore.running.duel_process import result_path
from benchcore.state import open_state


def _request(**changes: Any) -> SweepRequest:
    given = {
        "workload": "mnist_cnn",
        "case_filter": CaseFilter(use_case="train", batch=32),
        "varied": "devices",
        "values": (1, 2, 4),
        "a": ("stdlib",),
        "b": ("stdlib",),
    }
    return SweepRequest(**{**given, **changes})


@pytest.mark.parametrize(
    ("more", "case"),
    [({}, "train_b32"), ({"devices": 2}, "train_b32_x2"), ({"size": "large"}, "large_train_b32")],
)
def test_the_usual_case_is_meant_unless_another_is_named(more: dict[str, Any], case: str) -> None:
    assert choose_case("mnist_cnn", CaseFilter(use_case="train", batch=32), more) == case


def test_a_named_case_is_what_all_are_like_but_for_what_varies() -> None:
    request = _request(
        workload="ensemble",
        case_filter=CaseFilter(case="mlp_infer_n8_b32"),
        varied="models",
        values=(1, 8, 64),
    )
    names = [module._find_varied(request, each) for each in request.values]
    assert names == ["mlp_infer_n1_b32", "mlp_infer_n8_b32", "mlp_infer_n64_b32"]
    assert module._find_varied(dataclasses.replace(request, varied="batch"), 8) == "mlp_infer_n8_b8"
    with pytest.raises(UserError, match="models 7, but ensemble has some with 1, 16, 2, 4, 64, 8"):
        draft_sweep(dataclasses.replace(request, values=(1, 7)))
    other = CaseFilter(case="infer_b32")
    with pytest.raises(UserError, match="with models 1, but mlp has some with None"):
        draft_sweep(dataclasses.replace(request, workload="mlp", case_filter=other))


def _with_ratio(value: int, speedup: float, **changes: Any) -> dict[str, Any]:
    ratio = {"speedup": speedup, "low": speedup / 1.1, "high": speedup * 1.1, "counts": True}
    return {"value": value, "ratio": {**ratio, **changes}}


def test_the_crossing_is_of_values_that_count() -> None:
    points = [
        _with_ratio(1, 2.0),
        _with_ratio(2, 0.1, counts=False),
        _with_ratio(4, 9.0, low=None, high=None),
        {"value": 8, "ratio": None},
        _with_ratio(16, 0.5),
    ]
    found = module._find_crossing(points)
    assert (found["before"], found["after"]) == ("a", "b")
    assert found["value"] == pytest.approx(4.0)
    assert found["low"] < 4.0 < found["high"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"values": (1,)}, "wanted 2 to 20 different values of devices, got '1'"),
        ({"values": (2, 2)}, "wanted 2 to 20 different values"),
        ({"values": (1, 3)}, "devices '3', but none matches"),
        ({"workload": "mlp"}, "devices '2', but none matches"),
        ({"starts": 1}, "wanted --starts from 2"),
        ({"budget_s": float("nan")}, "got 5 and nan"),
    ],
)
def test_a_meaningless_sweep_is_refused(changes: dict[str, Any], words: str) -> None:
    case_filter = CaseFilter(use_case="train", batch=128 if "workload" in changes else 32)
    with pytest.raises(UserError, match=words):
        draft_sweep(_request(case_filter=case_filter, **changes))


def test_a_curve_has_a_point_per_value_also_where_a_side_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(workload="noop", case_filter=CaseFilter(), values=(1, 2))
    monkeypatch.setattr(module, "choose_case", lambda workload, given, more: "bare")
    plan = draft_sweep(request)
    one, two = plan.duels[0], dataclasses.replace(plan.duels[1], duel_run="b" * 16, case="other")
    plan = dataclasses.replace(plan, duels=(one, two))
    names = [each.name for each in one.contenders]
    state = open_state(tmp_path / "state")
    telemetry = dict.fromkeys(("sm_clock_mhz", "throttle_reasons", "foreign_processes"))
    for duel, took in ((one, 8.0), (two, 5.0)):
        blocks = [{"round": 0, "elapsed_ns": took, "steps": 1, "telemetry": telemetry}]
        starts = [{"blocks": blocks, "compilation": number} for number in range(3)]
        document = {"contenders": [{"name": each, "starts": starts} for each in names]}
        path = result_path(state, plan.campaign, duel.duel_run)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
    monkeypatch.setattr(module, "read_document", lambda path: json.loads(path.read_text()))
    monkeypatch.setattr(module, "count_devices", lambda workload, case: {"bare": 1}.get(case, 2))
    quick = {"status": "ok", "median_step_ns": 1e6, "items_per_s": 32e3}
    rows = [
        {"case": one.title, "name": names[0], **quick},
        {"case": one.title, "name": names[1], "status": "oom", "median_step_ns": None},
        {"case": two.title, "name": names[0], **quick},
        {"case": two.title, "name": names[1], "status": "timeout", "median_step_ns": None},
    ]
    monkeypatch.setattr(module, "list_contenders", lambda engine, campaign: rows)
    said = {"verdict": "different", "counts": True, "reason": "", "scope": "x", "num_starts": 5}
    turned = {"a": names[1], "b": names[0], "speedup": 0.5, "low": 0.4, "high": 0.8, **said}
    ratios = [{"duel_run": two.duel_run, **turned}]
    found = conclude_sweep(plan, request, state, ratios)
    first, second = found["points"]
    assert (first["value"], first["a"]["items_per_s"], first["b"]["status"]) == (1, 32e3, "oom")
    assert first["ratio"] is None
    assert second["ratio"] == {"speedup": 2.0, "low": 1.25, "high": 2.5, **said}
    assert is_measured(found)
    without = [
        {**point, "ratio": ratio}
        for point, ratio in zip(
            found["points"], (None, {**second["ratio"], "speedup": None}), strict=True
        )
    ]
    assert not is_measured({**found, "points": without})
    table = list_rows(found)
    assert [row["devices"] for row in table] == [1, 2]
    assert table[0].keys() == table[1].keys()
    ends = [f"a_efficiency{end}" for end in ("", "_low", "_high")]
    assert [table[0][end] for end in ends] == [None] * 3, "the fewest devices are the measure"
    assert [table[1][end] for end in ends] == pytest.approx([0.8] * 3)
    assert table[1]["b_efficiency"] is None, "a side that failed has none"

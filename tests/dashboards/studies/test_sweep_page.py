from __future__ import annotations

import re
from typing import Any

import pytest
from dashboard_nights import HOSTILE

from dashboards.studies.sweep_page import (
    describe_crossing,
    list_points,
    render_sweep,
    sweep_chart,
)


def _side(step_ms: float | None, status: str = "ok") -> dict[str, Any]:
    rate = None if step_ms is None else 1000 / step_ms
    took = None if step_ms is None else step_ms * 1e6
    memory = {"process_peak_bytes": 2**30, "allocator_peak_bytes": None}
    shapes = {"new_shape_s": None, "after_new_shapes": None}
    times = {"median_step_ns": took, "items_per_s": rate, "cold_compile_s": 1.5}
    return {"status": status, **times, **memory, **shapes}


def found_sweep(**changes: Any) -> dict[str, Any]:
    ratio = {"speedup": 1.25, "low": 1.2, "high": 1.3, "verdict": "different"}
    return {
        "workload": "mlp",
        "varied": "batch",
        "names": {"a": "jax-jit-1", "b": "torch-eager-2"},
        "points": [
            {
                "value": 8,
                "case": "mlp infer_b8",
                "a": _side(4),
                "b": _side(5),
                "ratio": {**ratio, "counts": True, "reason": ""},
            },
            {
                "value": 128,
                "case": "mlp infer_b128",
                "a": _side(40),
                "b": _side(None, "oom"),
                "ratio": None,
            },
        ],
        "crossing": None,
        **changes,
    }


@pytest.mark.parametrize(
    ("varied", "crossing", "text"),
    [
        (
            "models",
            {"before": "b", "after": "a", "value": 3.125, "low": 2.2, "high": 4.4, "reason": ""},
            "torch-eager-2 is faster below 3.12 models, jax-jit-1 above (95 % interval 2.2 to 4.4, "
            "interpolated between the values).",
        ),
        (
            "batch",
            {"value": None, "reason": "a leads wherever a lead is shown"},
            "No crossing is shown: jax-jit-1 leads wherever a lead is shown.",
        ),
        (
            "batch",
            {"value": None, "reason": "the lead changes sides more than once"},
            "No crossing is shown: the lead changes sides more than once.",
        ),
    ],
)
def test_the_crossing_is_a_sentence_on_the_page(
    varied: str, crossing: dict[str, Any], text: str
) -> None:
    found = found_sweep(varied=varied, crossing=crossing)
    assert describe_crossing(found) == text
    assert f"<p>{text}</p>" in render_sweep(found)
    assert "crossing" not in render_sweep(found_sweep())


def test_each_value_is_a_row_and_a_failed_side_is_named() -> None:
    first, second = list_points(found_sweep())
    assert first["speedup"] == "1.25x (1.20 to 1.30)"
    assert (second["batch"], second["b"], second["speedup"]) == (128, "oom", "")
    assert second["b per s"] == ""
    assert (first["a compile"], "a new shape" in first) == ("1.50 s", False)


def test_a_sweep_over_devices_shows_how_well_they_scale() -> None:
    found = found_sweep(varied="devices")
    ends = ("efficiency", "efficiency_low", "efficiency_high")
    measured = [dict.fromkeys(ends), dict(zip(ends, (0.852, 0.81, 0.894), strict=True))]
    for point, efficiency in zip(found["points"], measured, strict=True):
        point["a"] |= efficiency
        point["b"] |= {**efficiency, "efficiency_low": None, "efficiency_high": None}
    first, second = list_points(found)
    assert (first["a efficiency"], second["a efficiency"]) == ("", "85 % (81 to 89 %)")
    assert second["b efficiency"] == "85 % (no interval)"
    assert '<td class="number">85 % (81 to 89 %) / 85 % (no interval)</td>' in render_sweep(found)
    assert "Efficiency" not in render_sweep(found_sweep())


def test_what_new_shapes_cost_is_shown_of_cases_that_meet_some() -> None:
    found = found_sweep()
    found["points"][0]["a"] |= {"new_shape_s": 0.25, "after_new_shapes": 3.0}
    first, second = list_points(found)
    assert (first["a new shape"], first["a step after new shapes"]) == ("250 ms", "3.00x")
    assert second["b new shape"] == "not measured"


def test_the_page_has_compile_times_and_what_new_shapes_cost() -> None:
    page = render_sweep(found_sweep())
    assert "<h1>MLP: jax-jit-1 against" in page
    assert page.index('">Speedup</th>') < page.index('">Step</th>'), "the answer comes first"
    assert '<td class="number">1.50 s</td>' in page
    assert "First step of a new shape" not in page
    found = found_sweep()
    found["points"][0]["a"] |= {"new_shape_s": 0.25, "after_new_shapes": 3.0}
    page = render_sweep(found)
    assert ">First step of a new shape</th>" in page and ">Step after new shapes</th>" in page
    assert "250 ms / not measured" in page and "3.00x / not measured" in page


def test_a_value_without_undisturbed_blocks_says_why_it_has_no_number() -> None:
    found = found_sweep()
    reason = "20 of 40 blocks left out as degraded"
    none = {"speedup": None, "low": None, "high": None, "verdict": "unknown"}
    found["points"][1] |= {"b": _side(None), "ratio": {**none, "counts": False, "reason": reason}}
    second = list_points(found)[1]
    assert (second["b"], second["counts"], second["note"]) == ("not measured", "no", reason)
    assert f"128 does not count: {reason}</p>" in render_sweep(found)


def test_the_chart_has_what_was_measured_in_the_order_of_the_values() -> None:
    chart = sweep_chart(found_sweep()).to_dict()
    shown = [(each["value"], each["side"]) for each in next(iter(chart["datasets"].values()))]
    assert shown == [(8, "jax-jit-1"), (8, "torch-eager-2"), (128, "jax-jit-1")]
    assert chart["encoding"]["x"]["sort"] == [8, 128]


def test_hostile_strings_stay_text() -> None:
    found = found_sweep(workload=HOSTILE, names={"a": HOSTILE, "b": "b"})
    found["points"][1]["b"]["status"] = HOSTILE
    page = re.sub(r'<script type="module">.*?</script>', "", render_sweep(found), flags=re.S)
    assert "<script>alert" not in page
    assert "<img" not in page

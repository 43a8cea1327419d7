from __future__ import annotations

import re
from typing import Any

from dashboard_nights import HOSTILE

from dashboards.studies.waterfall_page import (
    describe_total,
    list_arms,
    list_bars,
    render_waterfall,
)


def _arm(label: str, step_ms: float | None, **changes: Any) -> dict[str, Any]:
    gain = {"factor": None, "low": None, "high": None, "verdict": None, "num_starts": None}
    step = {"median_step_ns": None if step_ms is None else step_ms * 1e6, "reason": ""}
    status = "left out" if step_ms is None else "ok"
    return {"label": label, "name": f"torch-{label}", "status": status, **step, **gain, **changes}


def _gain(factor: float, verdict: str = "faster") -> dict[str, Any]:
    ends = {"low": factor * 0.98, "high": factor * 1.02}
    return {"factor": factor, **ends, "verdict": verdict, "num_starts": 5}


def found_waterfall(**changes: Any) -> dict[str, Any]:
    return {
        "case": "resnet50 infer_b4",
        "node": "bench-07",
        "device_model": "AMD EPYC",
        "started_at": "2026-11-21 20:40 UTC",
        "arms": [
            _arm("eager", 200),
            _arm("channels_last", 160, **_gain(1.25)),
            _arm("compile", 180, **_gain(0.889, "slower")),
            _arm("graphs", None, reason="not run on this device: CUDA graphs need a GPU"),
            _arm("JAX", 240, **_gain(0.75, "slower")),
        ],
        "whole": _gain(1.11),
        "product": 1.1111,
        "why": [],
        **changes,
    }


def test_an_excluded_pair_is_listed_without_a_number() -> None:
    row = list_arms(found_waterfall())[3]
    assert row["note"] == "not run on this device: CUDA graphs need a GPU"
    assert (row["step"], row["against the one before"], row["starts"]) == ("", "", "")


def test_the_total_is_reported_as_measured_and_as_the_product_of_its_steps() -> None:
    assert describe_total(found_waterfall()) == (
        "From eager to compile, PyTorch becomes 1.11x (1.09 to 1.13) as fast; "
        "the product of the single gains is 1.11x."
    )
    assert "no total" in describe_total(found_waterfall(whole=None))


def test_bars_span_from_one_arm_to_the_next() -> None:
    bars = list_bars(found_waterfall())
    spans = {bar["arm"]: (bar["from"], bar["to"], bar["kind"]) for bar in bars}
    assert spans == {
        "eager": (0.0, 200.0, "same or unknown"),
        "channels_last": (160.0, 200.0, "faster"),
        "compile": (160.0, 180.0, "slower"),
        "JAX": (0.0, 240.0, "JAX"),
    }


def test_hostile_strings_stay_text() -> None:
    found = found_waterfall(case=HOSTILE, device_model=HOSTILE)
    found["arms"][1]["reason"] = found["arms"][1]["status"] = HOSTILE
    page = re.sub(r'<script type="module">.*?</script>', "", render_waterfall(found), flags=re.S)
    assert "<script>alert" not in page
    assert "<img" not in page


def test_what_limits_an_arm_is_listed_by_the_arms_name() -> None:
    row = {"name": "torch-compile", "bottleneck": "memory", "advice": "fuse", "reason": ""}
    row |= dict.fromkeys(("intensity", "ridge", "compute_share", "bandwidth_share", "host_share"))
    page = render_waterfall(found_waterfall(why=[row, {**row, "name": "another"}]))
    assert re.findall(r'<th scope="row" class="name">(.*?)</th>', page) == ["compile", "another"]

import json
import math
from typing import Any

import pandas as pd
from sample_frames import of_campaign, sample_frames
from sample_nights import nightly_campaign

from dashboards.figures.forest_chart import (
    ARM_DOMAIN,
    FRAMEWORK_DIRECTIONS,
    forest_chart,
    pair_rows,
    span_speedups,
)
from dashboards.frames import newest_pair_rows, select_rows, to_rows


def _tonight() -> Any:
    return of_campaign(sample_frames(num_nights=8).ratios, nightly_campaign(0))


def _newest(ratios: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(newest_pair_rows(to_rows(ratios)))


def _forest() -> dict[str, Any]:
    rows = pair_rows(_newest(_tonight()))
    return forest_chart(rows, directions=FRAMEWORK_DIRECTIONS, description="words").to_dict()


def _layers(spec: dict[str, Any], mark: str) -> list[dict[str, Any]]:
    return [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]


def _values(spec: dict[str, Any], layer: dict[str, Any]) -> list[dict[str, Any]]:
    return spec["datasets"][layer["data"]["name"]]


def test_the_forest_has_a_log_axis_that_reads_as_speedups_and_shows_1x() -> None:
    point = _layers(_forest(), "point")[-1]
    scale, axis = point["encoding"]["x"]["scale"], point["encoding"]["x"]["axis"]
    assert scale["type"] == "log"
    assert scale["domain"][0] < 1 < scale["domain"][1]
    assert 1 in axis["values"]
    assert axis["labelExpr"].endswith("+ 'x'")
    spec = _forest()
    assert _values(spec, _layers(spec, "rule")[0]) == [{"speedup": 1}]


def test_an_interval_of_two_starts_that_differ_is_drawn_to_a_limit() -> None:
    """A log axis has neither 0 nor infinity."""
    pairs = _newest(_tonight()).head(1).copy()
    pairs["low"], pairs["high"] = -2000.0, 2000.0
    (row,) = pair_rows(pairs).to_dict("records")
    assert (row["low"], row["high"]) == (1e-6, 1e6)
    spec = forest_chart(
        pair_rows(pairs), directions=FRAMEWORK_DIRECTIONS, description="words"
    ).to_dict()
    low, high = _layers(spec, "point")[-1]["encoding"]["x"]["scale"]["domain"]
    assert 0 < low < 1e-6 and 1e6 < high < math.inf


def test_arms_differ_in_color_shape_and_words() -> None:
    spec = _forest()
    point = _layers(spec, "point")[-1]
    for channel in ("color", "shape"):
        scale = point["encoding"][channel]["scale"]
        assert scale["domain"] == list(ARM_DOMAIN)
        assert len(set(scale["range"])) == len(ARM_DOMAIN)
    labels = {line["label"] for line in _values(spec, point)}
    assert labels == {
        "jax-jit-0.12.0.1 / torch-compile-2.15.0",
        "jax-jit-0.12.0.1 / torch-eager-2.15.0",
    }


def test_each_side_of_the_axis_names_the_faster_framework() -> None:
    text = json.dumps(_forest(), ensure_ascii=False)
    assert "\u2190 PyTorch faster" in text
    assert "JAX faster \u2192" in text


def test_a_pair_without_interval_is_a_point_without_a_line() -> None:
    rows = pair_rows(select_rows(_tonight(), _tonight()["kind"] == "cross_version"))
    spec = forest_chart(rows, directions=FRAMEWORK_DIRECTIONS, description="words").to_dict()
    lines = _values(spec, _layers(spec, "rule")[-1])
    points = _values(spec, _layers(spec, "point")[-1])
    assert {line["case"] for line in lines} == {"mlp infer_b128", "mlp train_b128"}
    assert len(points) == 3


def test_specifications_hold_no_nan() -> None:
    nan = math.nan
    ratios = _tonight().assign(log_ratio=nan, low=nan, high=nan, start_log_ratios=None)
    spec = forest_chart(
        pair_rows(_newest(ratios)), directions=FRAMEWORK_DIRECTIONS, description="words"
    ).to_dict()
    json.dumps(spec, allow_nan=False)


def test_ticks_are_round_at_every_width() -> None:
    assert span_speedups([]).ticks == (0.9, 1, 1.1)
    assert span_speedups([math.log(0.4), math.log(2.4)]).ticks == (0.5, 0.75, 1, 1.5, 2)
    assert span_speedups([math.log(0.1), math.log(5)]).ticks == (0.125, 0.25, 0.5, 1, 2, 4)
    assert span_speedups([math.log(0.01), math.log(50), math.nan]).ticks == (0.01, 0.1, 1, 10)

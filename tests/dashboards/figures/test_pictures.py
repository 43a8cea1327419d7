"""The forest plot as a picture: what it shows, and when it is not drawn."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from result_documents import JAX, TORCH, make_document, make_history
from stored_histories import open_history, store_history

from benchcore.state import State
from benchcore.store.history.series import read_series
from benchcore.store.history.suspicions import list_suspicions, refresh_suspicions
from benchcore.verdict.history.series import STEP_TIME
from dashboards.figures.pictures import chart_series, draw_forest, draw_series_png, to_data_uri


def _read_texts(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter() if each.text]


def test_every_pair_that_counts_is_drawn_with_its_ratio_and_starts(state: State) -> None:
    other = replace(TORCH, step_ns=2 * JAX.step_ns)
    open_history(state, [make_document((JAX, other), campaign="asked", starts=5)]).dispose()
    svg = draw_forest(state, "asked")
    assert svg is not None
    texts = _read_texts(svg)
    assert "2.000x (2.000 to 2.000)" in texts
    assert f"{JAX.name} / {TORCH.name}" in texts
    assert unquote(to_data_uri(svg)) == f"data:image/svg+xml,{svg}"


def test_the_series_of_a_suspicion_is_drawn_for_its_alert(state: State) -> None:
    logs = [0.3 + 0.001 * (night % 3) + 0.2 * (night >= 15) for night in range(20)]
    engine = open_history(state, make_history(logs))
    refresh_suspicions(engine)
    [suspicion] = list_suspicions(engine)
    engine.dispose()
    picture = draw_series_png(state, suspicion["id"])
    assert picture is not None and picture.startswith(b"\x89PNG")


def test_an_alert_whose_nights_do_not_count_any_more_is_drawn_as_far_as_possible(
    state: State,
) -> None:
    logs = [0.3 + 0.001 * (night % 3) + 0.2 * (night >= 15) for night in range(20)]
    documents = make_history(logs)
    engine = open_history(state, documents)
    refresh_suspicions(engine)
    store_history(engine, state, documents, wrong=[14, 15, 16, 17])
    assert draw_series_png(state, 1) is not None
    store_history(engine, state, documents, wrong=range(20))
    assert draw_series_png(state, 1) is None
    engine.dispose()


def test_the_rule_of_an_alert_s_chart_stays_if_its_night_was_measured_again(state: State) -> None:
    engine = open_history(state, make_history([0.1, 0.2, 0.3]))
    (series,) = read_series(engine)
    engine.dispose()
    first, again, last = series.nights
    nights = (first, replace(again, replaced=("f" * 16,)), last)
    chart = chart_series(replace(series, nights=nights), "f" * 16)
    shown = chart["datasets"][chart["layer"][1]["data"]["name"]]
    assert [each["night"] for each in shown] == [again.at.isoformat()]


@pytest.mark.parametrize(
    ("metric", "axis"),
    [
        (STEP_TIME, "times as fast"),
        ("cold_compile_s", "Compilation, caches empty, ratio (x)"),
        ("process_peak_bytes", "Process peak, ratio (x)"),
    ],
)
def test_the_axis_of_an_alert_s_chart_names_its_metric(
    state: State, metric: str, axis: str
) -> None:
    engine = open_history(state, make_history([0.1, 0.2, 0.3]))
    (series,) = read_series(engine, metrics=(metric,))
    engine.dispose()
    points, _ = chart_series(series, f"{1:016x}")["layer"]
    assert points["encoding"]["y"]["title"] == axis


def test_pairs_that_do_not_count_are_not_drawn(state: State) -> None:
    document = make_document((JAX, TORCH), campaign="asked")
    open_history(state, [document], wrong=[0]).dispose()
    assert draw_forest(state, "asked") is None

"""The page of a defect study: every error with its number, the fair one as a line, and nothing
that could run."""

from __future__ import annotations

import json
from typing import Any

from dashboards.studies.defects_page import render_study, study_chart, write_headline

_NUMBERS = {"speedup": 2.0, "low": 1.9, "high": 2.1, "num_starts": 3}
_MOVE = {"moved": 1.6, "moved_low": 1.5, "moved_high": 1.7}
_NOTHING = dict.fromkeys((*_NUMBERS, *_MOVE))
_CAUGHT = [{"guard": "numerics", "reason": "'logits' differs by 0.3 (tolerance 1e-05)"}]


def _make_study(**changes: Any) -> dict[str, Any]:
    switch = {"name": "v1-stride", "title": "JAX's is v1", "source": "somebody/code", "row": None}
    return {
        "workload": "resnet50",
        "case": "infer_b4",
        "use_case": "infer",
        "batch": 4,
        "precision": "fp32_ieee",
        "device": "Some CPU",
        "device_kind": "cpu",
        "started_at": "2026-01-02T03:04:05+00:00",
        "campaign": "study",
        "starts": 3,
        "disturbed": None,
        "versions": {"jax": "0.12.0", "torch": "2.15.0"},
        "fair": {"speedup": 1.25, "low": 1.2, "high": 1.3, "num_starts": 3, "caught": []},
        "switches": [
            {**switch, **_NUMBERS, **_MOVE, "caught": _CAUGHT, "why": None},
            {**switch, "name": "quiet", "title": "Quiet one", **_NUMBERS, **_MOVE}
            | {"caught": [], "why": None},
            {**switch, "name": "tf32", "title": "TF32 on one side", **_NOTHING}
            | {"caught": [], "why": "not run here: it needs a GPU"},
        ],
        "corrections": [
            {"title": "all of them", **_NUMBERS, **_MOVE, "caught": _CAUGHT, "why": None},
            {"title": "without: that", **_NUMBERS, **_MOVE, "caught": [], "why": None},
        ],
        **changes,
    }


def test_the_page_lists_every_error_with_its_number_and_its_guard() -> None:
    page = render_study(_make_study())
    for words in (
        *("2.0x (1.9 to 2.1)", "1.6x (1.5 to 1.7)", "1.25x (1.20 to 1.30)", "somebody/code"),
        *("a CPU; not run on a GPU", "JAX 0.12.0 and PyTorch 2.15.0", ">nothing</td>"),
        *("<b>numerics</b>", "without: that"),
    ):
        assert words in page
    row = page[page.index("TF32 on one side") :].split("</tr>")[0]
    assert "not run here: it needs a GPU" in row
    assert "x (" not in row
    assert "disturbed throughout" not in page


def test_a_disturbed_machine_is_reported_before_any_number() -> None:
    page = render_study(_make_study(disturbed="70 % of the CPUs used by other processes"))
    assert (
        0 < page.index("70 % of the CPUs used by other processes") < page.index("2.0x (1.9 to 2.1)")
    )


def test_text_of_a_document_is_escaped() -> None:
    hostile = "</script><script>alert(1)</script>"
    study = _make_study(device=hostile)
    study["switches"][0] |= {"title": hostile, "caught": [{"guard": hostile, "reason": hostile}]}
    assert "<script>alert" not in render_study(study)


def test_the_chart_shows_measurements_and_the_fair_pair_as_a_line() -> None:
    spec = study_chart(_make_study()).to_dict()
    assert "TF32 on one side" not in json.dumps(spec)
    (dashed,) = [each for each in spec["layer"] if "strokeDash" in each["mark"]]
    values = spec["datasets"]
    assert values[dashed["data"]["name"]] == [{"speedup": 1.25}]
    labels = {
        line["label"]: line["series"]
        for of_layer in values.values()
        for line in of_layer
        if "series" in line and "label" in line
    }
    assert labels["JAX's is v1"] != labels["Quiet one"] != labels["no error"]
    assert labels["without: that"] == labels["no error"]


def test_without_the_fair_pair_errors_have_no_baseline() -> None:
    nothing = {"speedup": None, "low": None, "high": None, "num_starts": 0, "caught": []}
    study = _make_study(fair=nothing, switches=[], corrections=[])
    assert (
        write_headline(study)
        == "The fair pair was not measured on ResNet-50, inference, batch 4, fp32"
    )
    assert "the errors have no baseline" in render_study(study)
